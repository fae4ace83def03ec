"""How workers talk to each other, also on nodes that count GPUs and have none.

There requests are as with GPUs, and CPUs compute. Ray gives a worker that asked for a GPU the
device cuda:0, there or not.
"""

from __future__ import annotations

from types import TracebackType

import ray
from ray.air._internal import device_manager
from ray.air._internal.device_manager.cpu import CPUTorchDeviceManager
from ray.train.torch import TorchConfig


def torch_config(*, use_gpu: bool) -> TorchConfig:
    """NCCL between GPUs, gloo where GPUs are only counted.

    Args:
        use_gpu: the workers ask for GPUs. A node may have been told to count some that are not
            there; Ray knows the kind of those that are.
    """
    real = any(name.startswith("accelerator_type:") for name in ray.cluster_resources())  # type: ignore[no-untyped-call]
    if use_gpu and not real:
        return CountedGpus(backend="gloo")
    return TorchConfig(backend="nccl" if use_gpu else "gloo")


class ComputeOnCpus:
    """Around the training function: ray.train.torch.get_device() and all that ask it say CPU."""

    def __enter__(self) -> None:
        """Puts the CPU in the place of the device that this worker was given."""
        device_manager._torch_device_manager = CPUTorchDeviceManager()  # type: ignore[assignment]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leaves it: the worker ends."""


class CountedGpus(TorchConfig):
    """For workers that ask for GPUs where no node has one."""

    @property
    def train_func_context(self) -> type[ComputeOnCpus]:
        """Is entered by each worker before the training function."""
        return ComputeOnCpus
