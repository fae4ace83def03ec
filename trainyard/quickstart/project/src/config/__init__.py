"""Settings of this project's trainings."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
RAY_CONFIG = PROJECT / "config" / "ray_config.yaml"
RESULTS = "~/ray-results"  # of your home folder, here and on the box
DATA = Path(__file__).resolve().parents[1] / "data"  # goes to the box with the code

RUN_ON_RAY_CLUSTER = True  # False: train on this machine
# Out of memory? Train on the CPU, or on a few examples, to see the whole way once.
FORCE_CPU = False
TRUNCATE_DATASET_TO_SIZE = 0  # blocks of text; 0 takes all

TEXT = "shakespeare"  # or python (its manual, without a network), or the path of a file
# The model and its training are nanoGPT's for the characters of Shakespeare.
LAYERS, HEADS, WIDTH = 6, 6, 384
BLOCK = 256  # characters that the model sees at once
DROPOUT = 0.2
BATCH = 64  # blocks
STEPS = 250  # batches of an epoch
EPOCHS = 20
LEARNING_RATE = 1e-3  # of AdamW
