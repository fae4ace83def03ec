"""Ray Train as Ray gives it: a cluster of its own with Ray's defaults, and no line of ours.

The third column of P6, P7, P10 and P20: what is slow there is Ray's, and not Trainyard's.
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from tests.ports import free_ports


def fit(worker: Callable[[], Any], *, workers: int = 1, max_failures: int = 0) -> None:
    """Run a training function in workers of a CPU each; what it prints is printed here.

    Args:
        worker: the training function, of a file that runs as `__main__`.
        workers: how many.
        max_failures: how often Ray starts them again.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # or Ray reports to its makers
    os.environ["RAY_TRAIN_ENABLE_PRINT_PATCH"] = "0"  # or each line comes twice
    # Ray's default is the port of a first stack, which may be about to start here.
    ray.init("local", dashboard_port=free_ports(1)[0])
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            worker,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(
                storage_path=folder, failure_config=FailureConfig(max_failures=max_failures)
            ),
        ).fit()
