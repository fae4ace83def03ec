"""Bounds of each container: memory, and processes with their threads.

Without a bound one job that leaks, or forks without end, takes the whole machine down. The bounds
are far above the needs of a service; those of Ray's nodes follow from their resources for jobs.
"""

from collections.abc import Mapping
from typing import Annotated

from cluster import services
from cluster.descriptor import Limit
from cluster.model import Known, Meaning, Model, whole

WORKER = "ray-worker"  # stands for all of them
DEFAULTS = {each.name: each.limit for each in services.ALL} | {WORKER: services.RAY.limit}


class ContainerLimits(Model):
    """Bounds that are set for one service; None for its default."""

    memory_mib: Annotated[int | None, whole(64, 1024 * 1_000_000)] = None
    processes: Annotated[int | None, whole(64, 4_194_304)] = None  # the kernel has no more ids


Limits = Annotated[
    dict[Annotated[str, Known(tuple(DEFAULTS))], ContainerLimits],
    Meaning("must be an object", f"write bounds by service: {', '.join(DEFAULTS)}"),
]


def of(service: str, given: Mapping[str, ContainerLimits]) -> Limit:
    """Return the bounds of a service: those that are set, else its own."""
    name = WORKER if service.startswith(f"{WORKER}-") else service
    default, mine = DEFAULTS[name], given.get(name, ContainerLimits())
    return Limit(
        memory_mib=mine.memory_mib or default.memory_mib,
        processes=mine.processes or default.processes,
    )
