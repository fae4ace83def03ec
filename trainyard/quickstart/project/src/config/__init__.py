"""Settings of this project's trainings."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
RAY_CONFIG = PROJECT / "config" / "ray_config.yaml"
RESULTS = "~/ray-results"  # of your home folder, here and on the box

RUN_ON_RAY_CLUSTER = True  # False: train on this machine
GPUS = 1  # of the training; 0 trains on CPUs
# Out of memory? Train on the CPU, or on a few examples, to see the whole way once.
FORCE_CPU = False
TRUNCATE_DATASET_TO_SIZE = 0  # examples; 0 takes all

EPOCHS = 5
LEARNING_RATE = 1e-3  # of Adam
