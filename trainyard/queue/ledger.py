"""Who used how much of the machines, and what that cost: pure arithmetic over intervals.

The machines that are there at a moment cost their price, whether they work or not. Each job pays
for its share of them, by what it asked for; what nobody asked for is idle. So the parts add up to
the whole at every moment, and an interval that is told twice is counted once.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TypeVar

HOUR_S, DAY_S = 3600.0, 86_400.0
IDLE = ""  # the job of what nobody used
T = TypeVar("T")


@dataclass(frozen=True)
class MachineUse:
    """An interval in which a machine was there; times are seconds since 1970."""

    node: str
    began: float
    ended: float
    price: float  # $ an hour, 0 for one that costs nothing more
    units: float  # its GPUs, or an eighth of its CPUs if it has none


@dataclass(frozen=True)
class JobUse:
    """An interval in which a job ran."""

    job: str
    began: float
    ended: float
    units: float  # GPUs, or an eighth of the CPUs of a job without GPUs


@dataclass(frozen=True)
class Share:
    """What a job used on one day, in UTC; the job IDLE has what nobody used."""

    day: str
    job: str
    unit_seconds: float
    cost: float  # $


def shares(
    machines: Iterable[MachineUse], jobs: Iterable[JobUse], since: float, until: float
) -> list[Share]:
    """Return each job's share on each day between two times, by day and job."""
    changes = _changes([*machines, *jobs], since, until)
    machine: dict[str, MachineUse] = {}  # those that are there between two changes
    job: dict[str, JobUse] = {}
    used: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (begin, begun), (end, _) in pairwise(changes):
        for each, is_there in begun:
            if isinstance(each, JobUse):
                _note(job, each.job, each, is_there=is_there)
            else:
                _note(machine, each.node, each, is_there=is_there)
        asked = sum(each.units for each in job.values())
        # More than there is: of jobs that share a machine without saying so.
        units = max(sum(each.units for each in machine.values()), asked)
        cost = sum(each.price for each in machine.values()) * (end - begin) / HOUR_S
        day = datetime.fromtimestamp(begin, UTC).date().isoformat()
        parts = [(each.job, each.units) for each in job.values()]
        # Of machines that say nothing of what they have, all is idle.
        for name, part in [*parts, (IDLE, units - asked if units else 1.0)]:
            if part and (units or cost):
                total = used[day, name]
                total[0] += (end - begin) * part if units else 0.0
                total[1] += cost * part / (units or 1.0)
    return [Share(day, job, *total) for (day, job), total in sorted(used.items())]


def billed(machines: Iterable[MachineUse], since: float, until: float) -> float:
    """Return what machines cost between two times, in $."""
    there = ((max(each.began, since), min(each.ended, until), each.price) for each in machines)
    return sum(max(0.0, end - begin) / HOUR_S * price for begin, end, price in there)


def month(now: float) -> float:
    """Return when the month of a time began, in UTC."""
    day = datetime.fromtimestamp(now, UTC)
    return day.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp()


def _note(known: dict[str, T], name: str, each: T, *, is_there: bool) -> None:
    if is_there:
        known[name] = each
    elif known.get(name) == each:  # else a later interval of it has begun
        del known[name]


def _changes(
    found: Sequence[MachineUse | JobUse], since: float, until: float
) -> list[tuple[float, list[tuple[MachineUse | JobUse, bool]]]]:
    """Return the moments at which anything begins or ends, and midnights, in their order."""
    moments: dict[float, list[tuple[MachineUse | JobUse, bool]]] = {since: [], until: []}
    for day in range(int(since // DAY_S) + 1, int(until // DAY_S) + 1):
        moments[DAY_S * day] = []
    for each in found:
        begin, end = max(each.began, since), min(each.ended, until)
        if begin < end:
            moments.setdefault(end, []).insert(0, (each, False))  # ends come first
            moments.setdefault(begin, []).append((each, True))
    return sorted(moments.items(), key=lambda moment: moment[0])
