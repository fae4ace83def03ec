"""Communication between workers, also on nodes that count GPUs but have none.

Requests on such nodes are the same as with GPUs, and CPUs compute. Ray gives a worker that asked
for a GPU the device cuda:0, whether it exists or not.
"""

from dataclasses import replace
from typing import Any

import ray
import torch
from ray.air._internal import device_manager
from ray.air._internal.device_manager.cpu import CPUTorchDeviceManager
from ray.train._internal.base_worker_group import BaseWorkerGroup
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

BACKENDS = {True: "nccl", False: "gloo"}  # by whether the workers have GPUs


def torch_config(*, use_gpu: bool) -> TorchConfig:
    """NCCL between GPUs, gloo where GPUs are only counted.

    Args:
        use_gpu: the workers ask for GPUs. A node may have been told to count GPUs that it does not
            have; Ray only knows the kind of real ones. Nodes that an autoscaler starts for the
            workers are not known yet: then the workers find out.
    """
    real = any(name.startswith("accelerator_type:") for name in ray.cluster_resources())  # type: ignore[no-untyped-call]
    if use_gpu and not real:
        return CountedGpus()
    return TorchConfig(backend=BACKENDS[use_gpu])


class ComputeOnCpus:
    """Makes ray.train.torch.get_device() return the CPU around the training function."""

    def __enter__(self) -> None:
        """Replaces the device that this worker was given by the CPU, unless it exists."""
        if torch.cuda.is_available():
            return
        device_manager._torch_device_manager = CPUTorchDeviceManager()  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        """Restores nothing: the worker ends."""


class FoundGpus(_TorchBackend):
    """Connects workers by NCCL if all of them have found their GPU, else by gloo."""

    def on_start(self, worker_group: BaseWorkerGroup, backend_config: Any) -> None:
        """Asks the workers, then connects them."""
        found = all(worker_group.execute(torch.cuda.is_available))
        super().on_start(worker_group, replace(backend_config, backend=BACKENDS[found]))


class CountedGpus(TorchConfig):
    """For workers that ask for GPUs where no node is known to have one."""

    @property
    def backend_cls(self) -> type[FoundGpus]:
        """What connects the workers."""
        return FoundGpus

    @property
    def train_func_context(self) -> type[ComputeOnCpus]:
        """The context that each worker enters before the training function."""
        return ComputeOnCpus
