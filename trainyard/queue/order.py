"""A stand-in until the real order is merged: first come, first served."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

Bundle = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One waiting or running job."""

    name: str
    user: str
    priority: int
    queued: float
    bundles: tuple[Bundle, ...]
    after: tuple[str, ...] = ()
    seconds: float | None = None
    started: float | None = None
    preemptible: bool = True


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Bounds of a user."""

    gpus: float | None = None
    gpu_hours_week: float | None = None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of the order."""

    half_life_s: float = 7 * 86400
    backfill: bool = False
    preempt: bool = False
    quotas: Mapping[str, Quota] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """One that waits."""

    name: str
    place: int
    reason: str
    begins: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do now."""

    start: tuple[str, ...]
    preempt: tuple[str, ...]
    waiting: tuple[Waiting, ...]


def plan(
    waiting: Sequence[Entry],
    running: Sequence[Entry],
    nodes: Sequence[Bundle],
    use: Mapping[str, float],
    rules: Rules,
    now: float,
    ended: Collection[str] = (),
) -> Plan:
    """Start in order of priority and time, first fit."""
    free = [dict(node) for node in nodes]

    def take(bundles: Sequence[Bundle]) -> bool:
        nonlocal free
        room = [dict(node) for node in free]
        for bundle in bundles:
            for node in room:
                if all(node.get(k, 0) >= v for k, v in bundle.items()):
                    for k, v in bundle.items():
                        node[k] -= v
                    break
            else:
                return False
        free = room
        return True

    for each in running:
        take(each.bundles)
    start, left, blocked = [], [], False
    for each in sorted(waiting, key=lambda e: (-e.priority, e.queued, e.name)):
        if set(each.after) - set(ended):
            left.append((each, f"after job {each.after[0]}"))
        elif not blocked and take(each.bundles):
            start.append(each.name)
        else:
            blocked = True
            wants = ", ".join(f"{k} {v:g}" for b in each.bundles[:1] for k, v in b.items())
            left.append((each, f"waits for {wants}"))
    return Plan(
        start=tuple(start),
        preempt=(),
        waiting=tuple(
            Waiting(name=e.name, place=i, reason=reason, begins=None)
            for i, (e, reason) in enumerate(left, 1)
        ),
    )
