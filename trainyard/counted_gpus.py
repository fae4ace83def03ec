"""Communication between workers, also on nodes that count GPUs but have none.

Requests on such nodes are the same as with GPUs, and CPUs compute. Ray gives a worker that asked
for a GPU the device cuda:0, whether it exists or not.
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
        use_gpu: the workers ask for GPUs. A node may have been told to count GPUs that it does not
            have; Ray only knows the kind of real ones.
    """
    real = any(name.startswith("accelerator_type:") for name in ray.cluster_resources())  # type: ignore[no-untyped-call]
    if use_gpu and not real:
        return CountedGpus(backend="gloo")
    return TorchConfig(backend="nccl" if use_gpu else "gloo")


class ComputeOnCpus:
    """Makes ray.train.torch.get_device() return the CPU around the training function."""

    def __enter__(self) -> None:
        """Replaces the device that this worker was given by the CPU."""
        device_manager._torch_device_manager = CPUTorchDeviceManager()  # type: ignore[assignment]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restores nothing: the worker ends."""


class CountedGpus(TorchConfig):
    """For workers that ask for GPUs where no node has one."""

    @property
    def train_func_context(self) -> type[ComputeOnCpus]:
        """The context that each worker enters before the training function."""
        return ComputeOnCpus
