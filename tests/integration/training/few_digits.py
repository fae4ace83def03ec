"""pytorch_distributed_training.py with few of the digits: for test_examples.py.

DIGITS says how many are learned from: an epoch of all 1,500 takes 25 processor seconds.
"""

import os

from trainyard.jobs import pytorch_distributed_training as job

HELD_OUT = 64

learn = job.train_worker


def train_worker(session):
    from trainyard.data import digits, fashion_mnist

    learned = int(os.environ["DIGITS"])
    read, count = digits.read_pixels, learned + HELD_OUT
    digits.read_pixels = lambda: tuple(part[:count] for part in read())
    fashion_mnist.DIGITS_KEPT = learned
    learn(session)


job.train_worker = train_worker
if __name__ == "__main__":
    job.main()
