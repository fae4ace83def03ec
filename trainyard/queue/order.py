"""The order of the queue: which jobs start now, which stop for others, and why the rest waits.

One pure function over values: it reads no clock, no cluster and no database. A job starts with all
its bundles or not at all. The order is priority, then fair share between users, then time, then
name. The first job that does not fit holds back all behind it, so large jobs do not starve; with
`backfill`, later jobs fill what it leaves if that does not delay it (EASY backfill). Jobs that wait
for something other than room (`after`, a quota, a node that is large enough) let others pass.
"""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, le, sub

from trainyard.packing import Amounts, Bundle, GaveUpError, amounts, describe, place

FIRST = ("GPU", "CPU")  # of the resources: nodes with little of the first are filled first
CPUS_OF_A_GPU = 8.0  # in the fair share, for jobs without GPUs
# Bounds of one plan, so that 10,000 waiting jobs take about a second at most.
STATES = 300  # of one search for a place; one that is given up counts as "does not fit"
BACKFILLED = 300  # searches without a place, after which backfill ends
VICTIMS = 300  # sets of jobs to preempt, after which the youngest that suffice are taken
ESTIMATED = 50  # first places that get an estimate

Asks = tuple[Amounts, ...]
Held = list[tuple[int, Amounts]]
"""What a job has of nodes, by their index."""


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
        begins: an estimate, seconds since the epoch: if all keep to what they say, and without
            backfill. None where a job ahead does not say it, and behind the first places.
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
        preempt: names of running jobs to stop; the one that needs their room starts in a later
            plan, and there is one such job at a time.
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
    """Decide which jobs start now. The order of jobs in the arguments does not matter.

    Args:
        waiting: jobs that wait.
        running: jobs that run, or were told to start.
        nodes: what each node has for the queue: free of other work, plus what `running` holds.
        use: each user's decayed GPU-seconds; a job without GPUs uses an eighth of its CPU-seconds.
        rules: how to decide.
        now: seconds since the epoch.
        ended: names of jobs that ended, for `after`.
        week: each user's GPU-hours of the last seven days, for quotas.
    """
    planner = _Planner(waiting, running, nodes, rules, now)
    planner.count(use, week or {})
    return planner.plan(frozenset(ended))


def gpus(entry: Entry) -> float:
    """All GPUs of a job."""
    return sum(bundle.get("GPU", 0) for bundle in entry.bundles)


def share(entry: Entry) -> float:
    """What a job counts in the fair share, in GPUs."""
    return gpus(entry) or sum(each.get("CPU", 0) for each in entry.bundles) / CPUS_OF_A_GPU


class _Planner:
    """One plan while it is made.

    Attributes:
        first: the first job without room, which holds back all behind it.
        at: when it can start by what the running ones say; None if they do not say enough.
        left: what it then leaves of each node, for jobs that still run at that time.
        most: the most that it can use of each node, whenever it starts.
        barred: why jobs wait that wait for something other than room.
    """

    def __init__(
        self,
        waiting: Sequence[Entry],
        running: Sequence[Entry],
        nodes: Sequence[Bundle],
        rules: Rules,
        now: float,
    ) -> None:
        self.rules, self.now = rules, now
        self.waiting = sorted(waiting, key=lambda each: (each.queued, each.name))
        self.going = {each.name: each for each in sorted(running, key=lambda each: each.name)}
        bundles = (b for each in (*self.waiting, *self.going.values()) for b in each.bundles)
        names = {name for bundle in (*nodes, *bundles) for name in bundle}
        self.names = [*FIRST, *sorted(names.difference(FIRST))]
        self.capacity = [amounts(node, self.names) for node in nodes]
        self.free = list(self.capacity)
        self.asked: dict[tuple[tuple[str, float], ...], Amounts] = {}
        self.held: dict[str, Held] = {}
        self.on: dict[str, tuple[int, ...]] = {}
        self.victims: Sequence[Entry] = ()
        self.barred: dict[str, str] = {}
        self.failed: set[tuple[str, Asks]] = set()
        self.first: Entry | None = None
        self.at: float | None = None
        self.left: list[Amounts] = []
        self.most: list[Amounts] = []
        self._seat()

    def count(self, use: Mapping[str, float], week: Mapping[str, float]) -> None:
        """Count for each user what was used and what runs."""
        decayed = math.log(2) / self.rules.half_life_s  # makes GPU-seconds an average of GPUs
        self.score = defaultdict(float, {user: each * decayed for user, each in use.items()})
        self.gpus: defaultdict[str, float] = defaultdict(float)
        self.hours = defaultdict(float, week)
        for each in self.going.values():
            self._charge(each)

    def plan(self, ended: frozenset[str]) -> Plan:
        queue = []
        for entry in self._ranked(ended):
            if why := self._over_quota(entry):
                self.barred[entry.name] = why
                continue
            if self.first is not None:
                on = self._backfill(entry) if self.rules.backfill else None
            else:
                on = self._place(self._asks(entry), self.free)
            if on is not None:
                self._start(entry, on)
                continue
            if self.first is None:
                if self._place(self._asks(entry), self.capacity) is None:
                    self.barred[entry.name] = f"no nodes with room for {describe(_total(entry))}"
                    continue
                self._reserve(entry)
            queue.append(entry)
        return Plan(
            start=tuple(self.on),
            preempt=tuple(each.name for each in self.victims),
            waiting=self._told(queue),
            on=self.on,
        )

    def _charge(self, entry: Entry) -> None:
        self.score[entry.user] += share(entry)
        self.gpus[entry.user] += gpus(entry)
        self.hours[entry.user] += self._hours(entry)

    def _hours(self, entry: Entry) -> float:
        """GPU-hours that a job is still to use; 0 if it does not say."""
        return gpus(entry) * (self._end(entry, 0) - self.now) / 3600

    def _begun(self, entry: Entry) -> float:
        return self.now if entry.started is None else entry.started

    def _end(self, entry: Entry, unknown: float = math.inf) -> float:
        seconds = unknown if entry.seconds is None else entry.seconds
        return max(self.now, self._begun(entry) + seconds)

    def _asks(self, entry: Entry) -> Asks:
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
        for entry in self.going.values():
            self.held[entry.name] = []
            if len(entry.on) == len(entry.bundles) and {*entry.on} <= {*range(len(self.free))}:
                self.held[entry.name] = _take(self.free, entry.on, self._asks(entry))
            else:
                unknown.append(entry)
        together = self._place([ask for each in unknown for ask in self._asks(each)], self.free)
        on = iter(together or ())
        for entry in unknown:
            asks = self._asks(entry)
            where = tuple(itertools.islice(on, len(asks))) or self._place(asks, self.free)
            if where is not None:  # else its node was lost: it holds nothing of the others
                self.held[entry.name] = _take(self.free, where, asks)

    def _ranked(self, ended: frozenset[str]) -> list[Entry]:
        """All that may start, in order; each counts for its user as if it had started."""
        levels: dict[int, dict[str, deque[Entry]]] = {}
        for entry in self.waiting:
            if missing := [name for name in entry.after if name not in ended]:
                self.barred[entry.name] = f"after job {', '.join(missing)}"
            elif why := self._over_quota(entry):
                self.barred[entry.name] = why
            else:
                lines = levels.setdefault(entry.priority, {})
                lines.setdefault(entry.user, deque()).append(entry)
        score = self.score.copy()
        order = []
        for _, lines in sorted(levels.items(), reverse=True):
            heads = [(score[user], line[0].queued, line[0].name) for user, line in lines.items()]
            users = {line[0].name: user for user, line in lines.items()}
            heapq.heapify(heads)
            while heads:
                user = users[heads[0][-1]]
                entry = lines[user].popleft()
                order.append(entry)
                score[user] += share(entry)
                if lines[user]:
                    following = lines[user][0]
                    users[following.name] = user
                    heapq.heapreplace(heads, (score[user], following.queued, following.name))
                else:
                    heapq.heappop(heads)
        return order

    def _over_quota(self, entry: Entry, kept: Entry | None = None) -> str | None:
        """Say which quota a job would exceed; `kept` counts as if it ran."""
        user, asks = entry.user, gpus(entry)
        quota = self.rules.quotas.get(user) or self.rules.quotas.get("")
        if quota is None or not asks:
            return None
        kept = kept if kept is not None and kept.user == user else None
        has = self.gpus[user] + (gpus(kept) if kept else 0)
        used, more = self.hours[user] + (self._hours(kept) if kept else 0), self._hours(entry)
        most, week = quota.gpus, quota.gpu_hours_week
        if most is not None and has + asks > most:
            also = f" and asks for {asks:g}" if has < most else ""
            return f"quota: {user} has {has:g} of {most:g} GPUs{also}"
        if week is not None and (used >= week or used + more > week):
            also = f" and asks for {more:.1f}" if used < week else ""
            return f"quota: {user} has {used:.1f} of {week:g} GPU-hours a week{also}"
        return None

    def _place(self, asks: Sequence[Amounts], room: Sequence[Amounts]) -> tuple[int, ...] | None:
        try:
            return place(asks, room, STATES)
        except GaveUpError:
            return None

    def _start(self, entry: Entry, on: tuple[int, ...]) -> None:
        self.held[entry.name] = _take(self.free, on, self._asks(entry))
        self.on[entry.name] = on
        self.going[entry.name] = entry
        self._charge(entry)

    def _without(self, jobs: Iterable[Entry]) -> list[Amounts]:
        """What is free when jobs that run have ended."""
        room = list(self.free)
        for i, amount in (one for each in jobs for one in self.held[each.name]):
            room[i] = tuple(map(add, room[i], amount))
        return room

    def _ends(self) -> list[Entry]:
        """Those that run and say how long, the next to end first; the preempted end now."""
        ends = {each.name: self._end(each) for each in self.going.values()}
        ends |= {each.name: self.now for each in self.victims}
        known = [name for name in ends if ends[name] < math.inf]
        return [self.going[name] for name in sorted(known, key=lambda name: (ends[name], name))]

    def _reserve(self, first: Entry) -> None:
        """Hold back all behind a job; find out when it starts, and what it leaves."""
        self.first = first
        asks = self._asks(first)
        if self.rules.preempt:
            self.victims = self._to_preempt(first)
        for has in self.capacity:
            here = [ask for ask in asks if all(map(le, ask, has))]
            self.most.append(tuple(map(sum, zip(*here, strict=True))) if here else (0,) * len(has))
        ends = self._ends()
        count = bisect_left(
            range(len(ends) + 1),
            True,
            key=lambda count: self._place(asks, self._without(ends[:count])) is not None,
        )
        if count <= len(ends):
            last = ends[count - 1]
            self.at = self.now if last in self.victims else self._end(last)
            self.left = self._without(ends[:count])
            _take(self.left, self._place(asks, self.left) or (), asks)

    def _to_preempt(self, first: Entry) -> Sequence[Entry]:
        """Choose running jobs that make room: as few as possible, the youngest first."""
        lower = [e for e in self.going.values() if e.preemptible and e.priority < first.priority]
        young = sorted(lower, key=lambda e: (-self._begun(e), e.name))
        asks = self._asks(first)

        def suffice(jobs: Sequence[Entry]) -> bool:
            return self._place(asks, self._without(jobs)) is not None

        if not suffice(young):
            return ()
        sizes = range(1, len(young) + 1)
        sets = itertools.chain.from_iterable(itertools.combinations(young, n) for n in sizes)
        for few in itertools.islice(sets, VICTIMS):
            if suffice(few):
                return few
        chosen = young[: bisect_left(sizes, True, key=lambda n: suffice(young[:n])) + 1]
        for each in reversed(chosen):  # the older go on where the younger suffice
            fewer = [one for one in chosen if one is not each]
            chosen = fewer if suffice(fewer) else chosen
        return chosen

    def _backfill(self, entry: Entry) -> tuple[int, ...] | None:
        """Find a place that does not delay the first job, nor take its user's quota."""
        if self._over_quota(entry, self.first) or len(self.failed) >= BACKFILLED:
            return None
        if self.at is None or entry.seconds is None:
            kind = "may never end"
        else:
            kind = "ends before" if self._end(entry) <= self.at else "runs beside"
        asks = self._asks(entry)
        if (kind, asks) in self.failed:  # within a plan, room only shrinks
            return None
        room = self.free
        if kind == "may never end":
            room = [_less(has, most) for has, most in zip(room, self.most, strict=True)]
        elif kind == "runs beside":
            room = [tuple(map(min, *each)) for each in zip(room, self.left, strict=True)]
        on = self._place(asks, room)
        if on is None:
            self.failed.add((kind, asks))
        elif self.left and kind != "ends before":
            _take(self.left, on, asks)
        return on

    def _told(self, queue: Sequence[Entry]) -> tuple[Waiting, ...]:
        begins = self._begins(queue)
        free = tuple(map(sum, zip(*self.free, strict=True))) or (0,) * len(self.names)
        told = [
            Waiting(
                name=entry.name,
                place=number,
                reason=f"{self._reason(entry, free)} (place {number})",
                begins=begins.get(entry.name),
            )
            for number, entry in enumerate(queue, 1)
        ]
        barred = [each for each in self.waiting if each.name in self.barred]
        barred.sort(key=lambda each: -each.priority)
        return *told, *(
            Waiting(name=entry.name, place=number, reason=self.barred[entry.name], begins=None)
            for number, entry in enumerate(barred, len(told) + 1)
        )

    def _reason(self, entry: Entry, free: Amounts) -> str:
        if entry is self.first and self.victims:
            return f"starts when {', '.join(each.name for each in self.victims)} stopped for it"
        total = _total(entry)
        asks = amounts(total, self.names)
        short = [name for name, a, b in zip(self.names, asks, free, strict=True) if a > b]
        if short:
            return f"waits for {describe({name: total[name] for name in short})}"
        if entry is self.first:
            count = len(entry.bundles)
            where = "one node" if count == 1 else f"nodes with room for all {count} bundles"
            return f"waits for {describe(total)} on {where}"
        return "waits for its turn"

    def _begins(self, queue: Sequence[Entry]) -> dict[str, float]:
        found: dict[str, float] = {}
        ends = [(self.now if e in self.victims else self._end(e), e.name) for e in self._ends()]
        if len(ends) < len(self.going):
            return found
        when, room, held = self.now, list(self.free), dict(self.held)
        for entry in queue[:ESTIMATED]:
            asks = self._asks(entry)
            while (on := self._place(asks, room)) is None and ends:
                when, name = heapq.heappop(ends)
                for i, amount in held[name]:
                    room[i] = tuple(map(add, room[i], amount))
            if on is None:
                break
            found[entry.name] = when
            if entry.seconds is None:
                break
            held[entry.name] = _take(room, on, asks)
            heapq.heappush(ends, (when + entry.seconds, entry.name))
        return found


def _take(room: list[Amounts], on: Sequence[int], asks: Asks) -> Held:
    """Take bundles from nodes; return what they hold, which is no more than there was."""
    held = []
    for i, ask in zip(on, asks, strict=True):
        had, room[i] = room[i], _less(room[i], ask)
        held.append((i, tuple(map(sub, had, room[i]))))
    return held


def _less(a: Amounts, b: Amounts) -> Amounts:
    return tuple(max(0, x - y) for x, y in zip(a, b, strict=True))


def _total(entry: Entry) -> Bundle:
    """All that a job asks for, GPUs first."""
    total: Bundle = dict.fromkeys(FIRST, 0.0)
    for name, amount in ((n, a) for bundle in entry.bundles for n, a in bundle.items()):
        total[name] = total.get(name, 0.0) + amount
    return {name: amount for name, amount in total.items() if amount}
