"""Which jobs leave their GPUs unused, by what Ray's agents say about each node.

An agent knows the use of each GPU, and which GPUs each worker was given. What cannot be told apart
counts as in use: jobs on one GPU share its use, a node on a machine with more GPUs than its own has
that of the busiest one, and a job whose workers have fewer GPUs than it asked for may use any.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.queue.head import SUPERVISOR

STALE_S = 120.0  # figures of an agent, and the last look: use may have been missed since
FAULTS = (AttributeError, KeyError, TypeError, ValueError)

Gpu = tuple[str, int]  # its node, and its number there


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """When the use of GPUs is low: for some minutes below some percent, which is 0 for never."""

    percent: float = 0
    minutes: float = math.inf  # after which the user is told
    stop_minutes: float = 0  # after which the job is asked to end; 0: never


NEVER = Bounds()


class LowUse:
    """Since when each job has left its GPUs unused, by the name of its attempt."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._since: dict[str, float] = {}
        self._looked = 0.0

    def look(
        self,
        nodes: Iterable[tuple[str, float, Any]],
        jobs: Mapping[str, tuple[str, float]],
        now: float,
    ) -> None:
        """Note which jobs leave all their GPUs unused now, in seconds since 1970.

        Args:
            nodes: the id of each living node with GPUs, how many it has, and what its agent says.
            jobs: Ray's own id of each attempt, and how many GPUs it asked for.
            now: when the agents were asked.
        """
        use: dict[Gpu, float] = {}
        given = defaultdict[str, set[Gpu]](set)
        for node, count, detail in nodes:
            found = dict.fromkeys(((node, number) for number in range(math.ceil(count))), math.inf)
            try:
                percents = _percents(detail["gpus"], now - detail["now"], len(found))
                for worker, numbers in _workers(detail):
                    given[worker] |= {(node, number) for number in numbers}
                found = dict(zip(found, percents, strict=True))
            except FAULTS:  # no agent has answered yet, or one of another Ray
                pass
            use |= found
        if not 0 <= now - self._looked <= STALE_S:
            self._since = {}
        low = []
        for name, (ray, asked) in jobs.items():
            own = given[SUPERVISOR + name] | given[ray]
            gpus = own if len(own) >= asked else {*use}
            if gpus and all(use.get(gpu, math.inf) < self.bounds.percent for gpu in gpus):
                low.append(name)
        self._since = {name: self._since.get(name, now) for name in low}
        self._looked = now

    def told(self, name: str) -> str:
        """Return what the user of an attempt should know; "" while its GPUs are in use."""
        stop = self.bounds.stop_minutes
        then = f"; after {stop:g} min it is stopped" if stop else ""
        is_low = self._minutes(name) >= self.bounds.minutes
        return f"its GPUs have been {self._below(name)}{then}" if is_low else ""

    def stops(self, name: str) -> str:
        """Return why an attempt is to end; "" if it is not."""
        stop = self.bounds.stop_minutes
        ends = stop and self._minutes(name) >= stop
        return f"its GPUs were {self._below(name)} (queueRules.lowUse)" if ends else ""

    def _minutes(self, name: str) -> float:
        return (self._looked - self._since.get(name, self._looked)) / 60

    def _below(self, name: str) -> str:
        return f"below {self.bounds.percent:g} % for {self._minutes(name) // 1:g} min"


def _percents(gpus: Iterable[Mapping[str, Any]], age_s: float, count: int) -> list[float]:
    """Return the use of each GPU of a node, infinite where it is not known; raises FAULTS."""
    found = [
        math.inf if (use := each["utilizationGpu"]) is None or use < 0 else float(use)
        for each in sorted(gpus, key=lambda each: each["index"])
    ]
    if abs(age_s) > STALE_S:
        return [math.inf] * count
    return found if len(found) == count else [max(found)] * count


def _workers(detail: Mapping[str, Any]) -> Iterable[tuple[str, set[int]]]:
    """Yield Ray's id of each worker's job, or its name as a job's entrypoint, and its GPUs."""
    for worker in detail["workers"]:
        for each in worker["coreWorkerStats"]:
            name = str((detail["actors"].get(each["actorId"]) or {}).get("name") or "")
            used = each["usedResources"].items()  # in a placement group, GPUGroup and its id
            slots = (
                slot for key, of in used if key.startswith("GPU") for slot in of["resourceSlots"]
            )
            job = name if name.startswith(SUPERVISOR) else each["jobId"]
            yield job, {int(slot["slot"]) for slot in slots}
