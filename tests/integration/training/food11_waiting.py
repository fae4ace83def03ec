"""train_ray.py with workers that wait for the file GO, and learn nothing: for test_food11.py.

The workers' places and resources are train_ray.py's own; nobody learns here.
"""

import os
import time
from pathlib import Path

from trainyard.jobs.food11 import train_ray


def train_func(config):
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.2)


train_ray.train_func = train_func
if __name__ == "__main__":
    train_ray.main()
