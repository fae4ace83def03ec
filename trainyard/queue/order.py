"""The order of the queue: which jobs start now, which stop for others, and why the rest waits.

One pure function over values: it reads no clock, no cluster and no database. A job starts with all
its bundles or not at all. The order is priority, then fair share between users, then time, then
name. The first job that does not fit holds back all behind it, so large jobs do not starve; with
`backfill`, later jobs fill what it leaves if that does not delay it (EASY backfill). Jobs that are
not held back by a lack of room (`after`, a quota, no such node) let others pass.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trainyard.packing import Amounts, Bundle, GaveUpError, amounts, describe, place

FIRST = ("GPU", "CPU")  # of the resources: nodes with little of the first are filled first
CPUS_OF_A_GPU = 8.0  # a job without GPUs counts as so many CPUs a GPU in the fair share
# Bounds of one plan, so that 10,000 waiting jobs take about a second at most.
STATES = 300  # of one search for a place; one that is given up counts as "does not fit"
BACKFILLED = 300  # searches without a place, after which backfill ends
VICTIMS = 300  # sets of jobs to preempt, after which the youngest are taken that suffice
ESTIMATED = 50  # first places that get an estimate


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A waiting or running job.

    Attributes:
        name: unique among all.
        queued: seconds since the epoch.
        after: names of jobs that must have ended before.
        seconds: how long it says to run; None if it does not say.
        started: seconds since the epoch; None if it waits.
        preemptible: whether it may be stopped for a job of higher priority.
        on: of a running job, the index of each bundle's node where that is known.
    """

    name: str
    user: str
    priority: int
    queued: float
    bundles: tuple[Bundle, ...]
    after: tuple[str, ...] = ()
    seconds: float | None = None
    started: float | None = None
    preemptible: bool = True
    on: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The most that a user may have: GPUs at a time, and GPU-hours in seven days."""

    gpus: float | None = None
    gpu_hours_week: float | None = None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How the queue decides.

    Attributes:
        half_life_s: seconds after which use counts half.
        quotas: by user; "" for all others.

    Raises:
        ValueError: the half-life is not above 0.
    """

    half_life_s: float
    backfill: bool
    preempt: bool
    quotas: Mapping[str, Quota]

    def __post_init__(self) -> None:
        if not self.half_life_s > 0:
            raise ValueError(f"half_life_s is {self.half_life_s:g}: set it to more than 0 seconds")


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A job that does not start now.

    Attributes:
        place: 1 for the next one.
        reason: in words.
        begins: an estimate, seconds since the epoch; None where a job ahead does not say how long
            it runs, and after the first places.
    """

    name: str
    place: int
    reason: str
    begins: float | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do now.

    Attributes:
        start: names, in order.
        preempt: names of running jobs to stop; who needs their room starts in a later plan.
        waiting: all others, in order.
        on: for each job to start, the index of a node for each bundle; Ray may choose others.
    """

    start: tuple[str, ...]
    preempt: tuple[str, ...]
    waiting: tuple[Waiting, ...]
    on: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def plan(
    waiting: Sequence[Entry],
    running: Sequence[Entry],
    nodes: Sequence[Bundle],
    use: Mapping[str, float],
    rules: Rules,
    now: float,
    ended: Collection[str] = (),
    week: Mapping[str, float] | None = None,
) -> Plan:
    """Decide which jobs start now. The order of the arguments' items does not matter.

    Args:
        waiting: jobs that wait.
        running: jobs that run, or were told to start.
        nodes: what each node has for the queue: free of other work, plus what `running` holds.
        use: each user's decayed GPU-seconds, of a job without GPUs an eighth of its CPU-seconds.
        rules: how to decide.
        now: seconds since the epoch.
        ended: names of jobs that ended, for `after`.
        week: each user's GPU-hours of the last seven days, for quotas.
    """
    return _Planner(waiting, running, nodes, use, rules, now, ended, week or {}).plan()


def gpus(entry: Entry) -> float:
    """All GPUs of a job."""
    return sum(bundle.get("GPU", 0) for bundle in entry.bundles)


def share(entry: Entry) -> float:
    """What a job counts in the fair share, in GPUs."""
    return gpus(entry) or sum(b.get("CPU", 0) for b in entry.bundles) / CPUS_OF_A_GPU


Room = list[Amounts]


@dataclass(frozen=True, kw_only=True)
class _Reservation:
    """What the first waiting job needs.

    Attributes:
        at: when it can start by what the running ones say; None if they do not say enough.
        left: what it then leaves of each node, for jobs that still run at that time.
        most: the most that it can use of each node, wherever it starts.
    """

    at: float | None
    left: Room
    most: Room


class _Planner:
    def __init__(
        self,
        waiting: Sequence[Entry],
        running: Sequence[Entry],
        nodes: Sequence[Bundle],
        use: Mapping[str, float],
        rules: Rules,
        now: float,
        ended: Collection[str],
        week: Mapping[str, float],
    ) -> None:
        self.waiting = sorted(waiting, key=lambda each: (each.queued, each.name))
        self.running = sorted(running, key=lambda each: each.name)
        self.rules, self.now, self.ended = rules, now, frozenset(ended)
        bundles = {id(b): b for each in (*waiting, *running) for b in each.bundles}
        names = {name for bundle in (*nodes, *bundles.values()) for name in bundle}
        self.names = [*FIRST, *sorted(names - {*FIRST})]
        self.capacity = [amounts(node, self.names) for node in nodes]
        self.asked: dict[tuple[tuple[str, float], ...], Amounts] = {}
        # By user: the fair share's score, GPUs that run, GPU-hours of the week that are taken.
        decayed = math.log(2) / rules.half_life_s  # makes GPU-seconds an average number of GPUs
        self.score = defaultdict(float, {user: each * decayed for user, each in use.items()})
        self.gpus: defaultdict[str, float] = defaultdict(float)
        self.hours = defaultdict(float, week)
        for each in self.running:
            self._charge(each)
        # What is free now, and what will be when the preempted have stopped and those whom they
        # make room for have started.
        self.free = list(self.capacity)
        self.held: dict[str, list[tuple[int, Amounts]]] = {}
        self._seat()
        self.soon = list(self.free)
        self.on: dict[str, tuple[int, ...]] = {}
        self.started: dict[str, Entry] = {}
        self.victims: dict[str, Entry] = {}
        self.making_room: dict[str, str] = {}
        self.barred: dict[str, str] = {}  # not by a lack of room: why
        self.failed: set[tuple[tuple[Amounts, ...], str]] = set()

    def plan(self) -> Plan:
        queue: list[Entry] = []
        first: Entry | None = None  # that has no room: it holds back all behind it
        reservation: _Reservation | None = None
        for entry in self._ranked():
            on = None
            if why := self._over_quota(entry):
                self.barred[entry.name] = why
                continue
            if first is None:
                on = self._place(self._asks(entry), self._usable())
                if on is None and not self._makes_room(entry):
                    if self._place(self._asks(entry), self.capacity) is None:
                        total = describe(self._total(entry))
                        self.barred[entry.name] = (
                            f"asks for {total}, which no free nodes would hold"
                        )
                        continue
                    first = entry
                    reservation = self._reserve(entry) if self.rules.backfill else None
            elif reservation is not None and self._over_quota(entry, first) is None:
                on = self._backfill(entry, reservation)
            if on is None:
                queue.append(entry)
            else:
                self._start(entry, on)
        return Plan(
            start=tuple(self.started),
            preempt=tuple(self.victims),
            waiting=self._told(queue, first),
            on=self.on,
        )

    def _charge(self, entry: Entry) -> None:
        self.score[entry.user] += share(entry)
        self.gpus[entry.user] += gpus(entry)
        self.hours[entry.user] += self._hours(entry)

    def _hours(self, entry: Entry) -> float:
        """GPU-hours that a job is still to use; 0 if it does not say."""
        begun = self.now if entry.started is None else entry.started
        return gpus(entry) * max(0.0, begun + (entry.seconds or 0) - self.now) / 3600

    def _asks(self, entry: Entry) -> tuple[Amounts, ...]:
        found = []
        for bundle in entry.bundles:
            key = tuple(bundle.items())
            if key not in self.asked:
                self.asked[key] = amounts(bundle, self.names)
            found.append(self.asked[key])
        return tuple(found)

    def _seat(self) -> None:
        """Take what runs from the nodes: where it is said to be, else where it fits."""
        unknown = []
        for entry in self.running:
            known = len(entry.on) == len(entry.bundles)
            if known and all(0 <= i < len(self.free) for i in entry.on):
                self.held[entry.name] = _take(self.free, entry.on, self._asks(entry))
            else:
                unknown.append(entry)
        together = [ask for entry in unknown for ask in self._asks(entry)]
        on = iter(self._place(together, self.free) or ())
        places = [tuple(itertools.islice(on, len(entry.bundles))) for entry in unknown]
        for entry, place_ in zip(unknown, places, strict=True):
            asks = self._asks(entry)
            # A node that was lost: what does not fit holds nothing of the others.
            where = place_ or self._place(asks, self.free) or ()
            self.held[entry.name] = _take(self.free, where, asks[: len(where)])

    def _ranked(self) -> list[Entry]:
        """All that may start, in order; each counts for its user as if it had started."""
        by_priority: dict[int, dict[str, list[Entry]]] = {}
        for entry in self.waiting:
            if missing := [name for name in entry.after if name not in self.ended]:
                self.barred[entry.name] = (
                    f"after job{'s' * (len(missing) > 1)} {', '.join(missing)}"
                )
            elif why := self._over_quota(entry):
                self.barred[entry.name] = why
            else:
                users = by_priority.setdefault(entry.priority, {})
                users.setdefault(entry.user, []).append(entry)
        score = dict(self.score)
        order = []
        for priority in sorted(by_priority, reverse=True):
            lines = {user: iter(each) for user, each in by_priority[priority].items()}
            heads = [
                (score.get(user, 0.0), entry.queued, entry.name, entry)
                for user, line in lines.items()
                for entry in itertools.islice(line, 1)
            ]
            heapq.heapify(heads)
            while heads:
                entry = heads[0][-1]
                order.append(entry)
                score[entry.user] = score.get(entry.user, 0.0) + share(entry)
                following = next(lines[entry.user], None)
                if following is None:
                    heapq.heappop(heads)
                else:
                    head = (score[entry.user], following.queued, following.name, following)
                    heapq.heapreplace(heads, head)
        return order

    def _quota(self, user: str) -> Quota:
        return self.rules.quotas.get(user) or self.rules.quotas.get("") or Quota()

    def _over_quota(self, entry: Entry, kept: Entry | None = None) -> str | None:
        """Say which quota a job would exceed; `kept` counts as if it ran."""
        count, user, quota = gpus(entry), entry.user, self._quota(entry.user)
        if not count:
            return None
        also = kept if kept is not None and kept.user == user else None
        has = self.gpus[user] + (gpus(also) if also else 0)
        if quota.gpus is not None and has + count > quota.gpus:
            asks = "" if has >= quota.gpus else f", and this job asks for {count:g}"
            return f"quota: {user} has {has:g} of {quota.gpus:g} GPUs{asks}"
        week = quota.gpu_hours_week
        used, more = self.hours[user] + (self._hours(also) if also else 0), self._hours(entry)
        if week is not None and (used + more > week or used >= week):
            asks = f", and this job asks for {more:.1f}" if used < week else ""
            return f"quota: {user} has {used:.1f} of {week:g} GPU-hours of seven days{asks}"
        return None

    def _place(self, asks: Sequence[Amounts], room: Room) -> tuple[int, ...] | None:
        try:
            return place(asks, room, STATES)
        except GaveUpError:
            return None

    def _usable(self) -> Room:
        """What a job can take now that takes nothing from those whom others make room for."""
        return [_least(a, b) for a, b in zip(self.free, self.soon, strict=True)]

    def _start(self, entry: Entry, on: tuple[int, ...]) -> None:
        asks = self._asks(entry)
        self.held[entry.name] = _take(self.free, on, asks)
        _take(self.soon, on, asks)
        self.on[entry.name] = on
        self.started[entry.name] = entry
        self._charge(entry)

    def _makes_room(self, entry: Entry) -> bool:
        """Choose running jobs to preempt: as few as possible, the youngest first."""
        if not self.rules.preempt:
            return False
        young = sorted(
            (
                each
                for each in self.running
                if each.preemptible
                and each.priority < entry.priority
                and each.name not in self.victims
            ),
            key=lambda each: (-(each.started or 0), each.name),
        )
        asks = self._asks(entry)

        def without(chosen: Iterable[Entry]) -> Room:
            return _given(self.soon, (one for each in chosen for one in self.held[each.name]))

        def suffice(chosen: Sequence[Entry]) -> bool:
            return self._place(asks, without(chosen)) is not None

        if not suffice(young):
            return False
        sets = itertools.chain.from_iterable(
            itertools.combinations(young, size) for size in range(len(young) + 1)
        )
        chosen = next(filter(suffice, itertools.islice(sets, VICTIMS)), None)
        if chosen is None:
            kept = young
            for each in reversed(young):  # the oldest go on if the younger suffice
                fewer = [one for one in kept if one is not each]
                kept = fewer if suffice(fewer) else kept
            chosen = tuple(kept)
        self.soon = without(chosen)
        self.held[entry.name] = _take(self.soon, self._place(asks, self.soon) or (), asks)
        self.victims |= {each.name: each for each in chosen}
        self.making_room[entry.name] = ", ".join(each.name for each in chosen) or "others"
        self._charge(entry)
        return True

    def _ends(self) -> list[tuple[float, str]]:
        """When those that run and say how long end, the next first."""
        return sorted(
            (max(self.now, (each.started or self.now) + each.seconds), each.name)
            for each in (*self.running, *self.started.values())
            if each.seconds is not None and each.name not in self.victims
        )

    def _reserve(self, first: Entry) -> _Reservation:
        asks, ends = self._asks(first), self._ends()

        def after(count: int) -> Room:
            return _given(self.soon, (one for _, name in ends[:count] for one in self.held[name]))

        def fits(count: int) -> bool:
            return self._place(asks, after(count)) is not None

        most = []
        for has in self.capacity:
            here = [ask for ask in asks if all(a <= b for a, b in zip(ask, has, strict=True))]
            most.append(tuple(map(sum, zip(*here, strict=True))) if here else (0,) * len(has))
        count = bisect_left(range(len(ends) + 1), True, key=fits)
        if count > len(ends):
            return _Reservation(at=None, left=[], most=most)
        left = after(count)
        _take(left, self._place(asks, left) or (), asks)
        return _Reservation(at=ends[count - 1][0] if count else self.now, left=left, most=most)

    def _backfill(self, entry: Entry, first: _Reservation) -> tuple[int, ...] | None:
        """Find a place that does not delay the first."""
        asks, usable = self._asks(entry), self._usable()
        if first.at is None or entry.seconds is None:
            kind = "for as long as it likes"
            room = [_less(a, b) for a, b in zip(usable, first.most, strict=True)]
        elif self.now + entry.seconds <= first.at:
            kind, room = "ends before", usable
        else:
            kind = "runs beside it"
            room = [_least(a, b) for a, b in zip(usable, first.left, strict=True)]
        # Room only shrinks within a plan: what did not fit once does not fit later.
        if (asks, kind) in self.failed or len(self.failed) >= BACKFILLED:
            return None
        on = self._place(asks, room)
        if on is None:
            self.failed.add((asks, kind))
        elif first.at is not None and kind != "ends before":
            _take(first.left, on, asks)
        return on

    def _told(self, queue: Sequence[Entry], first: Entry | None) -> tuple[Waiting, ...]:
        begins = self._begins(queue)
        free = _total(self.free, len(self.names))
        told = []
        for number, entry in enumerate(queue, 1):
            reason = f"{self._reason(entry, first, free)} (place {number})"
            told.append((entry.name, reason, begins.get(entry.name)))
        barred = [each for each in self.waiting if each.name in self.barred]
        barred.sort(key=lambda each: -each.priority)
        told += [(each.name, self.barred[each.name], None) for each in barred]
        return tuple(
            Waiting(name=name, place=number, reason=reason, begins=when)
            for number, (name, reason, when) in enumerate(told, 1)
        )

    def _reason(self, entry: Entry, first: Entry | None, free: Amounts) -> str:
        if entry.name in self.making_room:
            return f"starts when {self.making_room[entry.name]} stopped for it"
        total = self._total(entry)
        asks = amounts(total, self.names)
        short = [name for name, a, b in zip(self.names, asks, free, strict=True) if a > b]
        if short:
            return f"waits for {describe({name: total[name] for name in short})}"
        if entry is first:
            count = len(entry.bundles)
            where = "one node" if count == 1 else f"nodes with room for all {count} bundles"
            return f"waits for {describe(total)} on {where}"
        return "waits for its turn"

    def _total(self, entry: Entry) -> Bundle:
        names = [name for name in self.names if any(b.get(name) for b in entry.bundles)]
        return {name: sum(b.get(name, 0) for b in entry.bundles) for name in names}

    def _begins(self, queue: Sequence[Entry]) -> dict[str, float]:
        """When the first ones start if all keep to what they say, and without backfill."""
        found: dict[str, float] = {}
        going = [*self.running, *self.started.values()]
        if any(each.seconds is None and each.name not in self.victims for each in going):
            return found
        ends, when, room = self._ends(), self.now, list(self.soon)
        held = dict(self.held)
        for entry in queue[:ESTIMATED]:
            if entry.name not in held:  # or others make room for it
                while (on := self._place(self._asks(entry), room)) is None and ends:
                    when, name = heapq.heappop(ends)
                    room = _given(room, held[name])
                if on is None:
                    break
                held[entry.name] = _take(room, on, self._asks(entry))
            found[entry.name] = when
            if entry.seconds is None:
                break
            heapq.heappush(ends, (when + entry.seconds, entry.name))
        return found


def _take(room: Room, on: Sequence[int], asks: Sequence[Amounts]) -> list[tuple[int, Amounts]]:
    """Take bundles from nodes; return what they hold, which is no more than there was."""
    held = []
    for i, ask in zip(on, asks, strict=True):
        had = room[i]
        room[i] = _less(had, ask)
        held.append((i, tuple(a - b for a, b in zip(had, room[i], strict=True))))
    return held


def _given(room: Room, held: Iterable[tuple[int, Amounts]]) -> Room:
    """Return the room when what is held is free again."""
    more = list(room)
    for i, each in held:
        more[i] = tuple(map(sum, zip(more[i], each, strict=True)))
    return more


def _less(a: Amounts, b: Amounts) -> Amounts:
    return tuple(max(0, x - y) for x, y in zip(a, b, strict=True))


def _least(a: Amounts, b: Amounts) -> Amounts:
    return tuple(map(min, zip(a, b, strict=True)))


def _total(room: Room, width: int) -> Amounts:
    return tuple(sum(node[i] for node in room) for i in range(width))
