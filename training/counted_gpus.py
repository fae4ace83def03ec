"""Ray Train on nodes that count GPUs and have none: requests are as with GPUs, CPUs compute.

Ray gives a worker that asked for a GPU the device cuda:0, there or not.
"""

from __future__ import annotations

from types import TracebackType

from ray.air._internal import device_manager
from ray.air._internal.device_manager.cpu import CPUTorchDeviceManager
from ray.train.torch import TorchConfig


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
