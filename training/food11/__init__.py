"""GourmetGram's food classifier in four scripts, each a step further than the previous one.

docs/course.md walks through them.

train_lightning      plain Lightning
train_ray            with Ray Train: one worker or several, whole GPUs or parts
train_fault_tolerant goes on from its last checkpoint on another worker
train_tune           searches batch size and dropout with Ray Tune
"""
