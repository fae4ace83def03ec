"""Bounds of each container: memory, and processes with their threads.

Without a bound one job that leaks, or forks without end, takes the whole machine down. The bounds
are far above the needs of a service; those of Ray's nodes follow from their resources for jobs.
"""

from collections.abc import Mapping
from typing import Any

from cluster import services
from cluster.descriptor import Limit
from infra.reader import Reader

KEY = "containerLimits"
FIELDS = ("memoryMib", "processes")
LEAST = {"memoryMib": 64, "processes": 64}
MOST = {"memoryMib": 1024 * 1_000_000, "processes": 4_194_304}  # the kernel has no more process ids
WORKER = "ray-worker"  # stands for all of them


DEFAULTS = {each.name: each.limit for each in services.ALL} | {WORKER: services.RAY.limit}


def read(reader: Reader) -> dict[str, dict[str, int]]:
    """Return the bounds that are set, by service and field."""
    given = reader.object(KEY, f"write bounds by service: {', '.join(DEFAULTS)}")
    for service, bounds in given.items():
        key = f"{KEY}.{service}"
        if service not in DEFAULTS:
            reader.unknown(key, bounds, service, DEFAULTS)
        elif not isinstance(bounds, dict):
            reader.fault(key, bounds, "must be an object", f"write {{{': …, '.join(FIELDS)}: …}}")
        else:
            for field, value in bounds.items():
                _check(reader, f"{key}.{field}", field, value)
    return given


def _check(reader: Reader, key: str, field: str, value: Any) -> None:
    if field not in FIELDS:
        reader.unknown(key, value, field, FIELDS)
        return
    low, high = LEAST[field], MOST[field]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bound = f"must be a whole number from {low} to {high}"
        reader.fault(key, value, bound, f"set {key} within it")


def of(service: str, given: Mapping[str, Mapping[str, int]]) -> Limit:
    """Return the bounds of a service.

    Args:
        service: its name.
        given: bounds that are set.
    """
    name = WORKER if service.startswith(f"{WORKER}-") else service
    default, mine = DEFAULTS[name], given.get(name, {})
    return Limit(
        memory_mib=mine.get("memoryMib", default.memory_mib),
        processes=mine.get("processes", default.processes),
    )
