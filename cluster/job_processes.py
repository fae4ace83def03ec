"""How Ray starts the processes of jobs: a setting of the cluster."""

from collections.abc import Mapping
from typing import Annotated

from cluster.model import Model, one_of, whole
from node.ray_start import PRELOAD

SETTING = "jobProcesses"
# For processes without jemalloc. By default glibc raises the size from which blocks are mapped, and
# returned when freed, to 32 MiB; smaller blocks of a step leave holes, and a worker on CPUs grows
# step by step.
GLIBC = {"MALLOC_MMAP_THRESHOLD_": str(4 * 1024**2)}
ALLOCATORS: Mapping[str, dict[str, str]] = {
    # Ray preloads its own jemalloc, if its wheel has one, for all its processes but these. One
    # arena holds what all threads free for the next step, for 10 s: glibc returns tensors to the
    # kernel in each step, or keeps holes between them. A thread keeps some objects of up to 256 KiB
    # for itself, such as a decoded image (32 KiB by default).
    "jemalloc": {
        "RAY_LD_PRELOAD_ON_WORKERS": "1",
        "MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto,"
        "dirty_decay_ms:10000,muzzy_decay_ms:10000,lg_tcache_max:18",
    },
    "system": {},
}


class JobProcesses(Model):
    """How Ray starts the processes of jobs.

    Attributes:
        niceness: added to that of their node. With Ray's 15 all else on a machine goes before them.
        preload: whether they are forks of a process that has loaded PyTorch (node/worker_start.py).
    """

    niceness: Annotated[int, whole(0, 19)] = 0
    allocator: Annotated[str, one_of(ALLOCATORS)] = "jemalloc"
    preload: bool = True

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a node, which Ray reads."""
        preload = {PRELOAD: "1"} if self.preload else {}
        niceness = {"RAY_worker_niceness": str(self.niceness)}
        return niceness | preload | GLIBC | ALLOCATORS[self.allocator]
