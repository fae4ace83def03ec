"""The order of the queue: which jobs start now, which stop for others, and why the rest waits.

One pure function over values: it reads no clock, no cluster and no database. A job starts with all
its bundles or not at all. The order is priority, then fair share between users, then time, then
name. The first job that does not fit holds back all behind it, so large jobs do not starve; with
`backfill`, later jobs fill what it leaves if that does not delay it (EASY backfill). Jobs that wait
for something other than room (`after`, a quota, a node that is large enough) let others pass.
"""

import heapq
import itertools
import math
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from operator import add, le, sub

from trainyard.packing import Amounts, Bundle, GaveUpError, amounts, describe, place

FIRST = ("GPU", "CPU")  # of the resources: nodes with little of the first are filled first
CPUS_OF_A_GPU = 8.0  # in the fair share, for jobs without GPUs
# A job that runs counts as used so much of the half-life ahead: users take turns at once. With
# more, users of large jobs, who run none when one of theirs ends, would get more than others.
AHEAD = 0.01
# Bounds of one plan, so that 10,000 waiting jobs take about a second.
STATES = 300  # of one search for a place; one that is given up counts as "does not fit"
BACKFILLED = 300  # searches without a place, after which backfill ends
VICTIMS = 300  # sets of jobs to preempt, after which one without a superfluous job is taken
# While nobody can know when the first job starts, since those that run do not say when they end,
# others of its priority pass it for so many seconds: nodes that stay empty help nobody.
PATIENCE_S = 12 * 3600.0
ESTIMATED = 50  # first places that get an estimate

Asks = tuple[Amounts, ...]
Held = list[tuple[int, Amounts]]  # by the index of a node


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A waiting or running job; times are in seconds since the epoch."""

    name: str  # unique among all
    user: str
    priority: int
    queued: float
    bundles: tuple[Bundle, ...]
    after: tuple[str, ...] = ()  # names of jobs that must have ended before
    seconds: float | None = None  # how long it says to run
    started: float | None = None  # None: it waits
    preemptible: bool = True  # may be stopped for a job of higher priority
    on: tuple[int, ...] = ()  # of a running job: the index of each bundle's node, where known


@dataclass(frozen=True, kw_only=True)
class Quota:
    """The most that a user or a group may have: GPUs at a time, and GPU-hours in seven days."""

    gpus: float | None = None
    gpu_hours_week: float | None = None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How the queue decides."""

    half_life_s: float  # after which use counts half
    backfill: bool
    preempt: bool
    quotas: Mapping[str, Quota]  # by user, "" for all others; by "@GROUP" for its users together
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)  # users


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A job that does not start now."""

    name: str
    place: int  # 1 for the next one
    reason: str
    begins: float | None  # if all keep to what they say, without backfill; None: they do not say


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do now. One job at a time preempts; it starts in a later plan, when they stopped."""

    start: tuple[str, ...]
    preempt: tuple[str, ...]  # running jobs to stop
    waiting: tuple[Waiting, ...]  # all others, in order
    on: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of those to start


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
    """Decide which jobs start now; the order of jobs in the arguments does not matter.

    `running` has also those that were told to start. `nodes` is what each node has for the queue:
    free of other work, plus what `running` holds. `use` is each user's decayed GPU-seconds (of a
    job without GPUs, an eighth of its CPU-seconds), `week` the GPU-hours of the last seven days.
    """
    return _Planner(
        rules=rules,
        now=now,
        waiting=sorted(waiting, key=lambda each: (each.queued, each.name)),
        going={each.name: each for each in sorted(running, key=lambda each: each.name)},
        nodes=nodes,
        score=defaultdict(float, use),
        hours=defaultdict(float, week or {}),
    ).plan(frozenset(ended))


def gpus(entry: Entry) -> float:
    """All GPUs of a job."""
    return sum(bundle.get("GPU", 0) for bundle in entry.bundles)


def share(entry: Entry) -> float:
    """What a job counts in the fair share, in GPUs."""
    return gpus(entry) or sum(each.get("CPU", 0) for each in entry.bundles) / CPUS_OF_A_GPU


@dataclass(kw_only=True)
class _Planner:
    """One plan while it is made."""

    rules: Rules
    now: float
    waiting: list[Entry]
    going: dict[str, Entry]  # those that run, and those that start
    nodes: InitVar[Sequence[Bundle]]
    score: defaultdict[str, float]  # of the fair share, by user
    hours: defaultdict[str, float]  # GPU-hours of the week, by user and group; so are the GPUs
    gpus: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    groups: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    held: dict[str, Held] = field(default_factory=dict)
    on: dict[str, tuple[int, ...]] = field(default_factory=dict)
    victims: Sequence[str] = ()
    barred: dict[str, str] = field(default_factory=dict)  # why, if not for a lack of room
    failed: set[tuple[str, Asks]] = field(default_factory=set)  # to be backfilled
    # The first job without room holds back all behind it. When it can start by what those that run
    # say (None: not enough of them say), what it then leaves of each node for those who still run,
    # and the most that it can use of each node, whenever it starts.
    first: Entry | None = None
    at: float | None = None
    left: list[Amounts] = field(default_factory=list)
    most: list[Amounts] = field(default_factory=list)

    def __post_init__(self, nodes: Sequence[Bundle]) -> None:
        bundles = (b for each in (*self.waiting, *self.going.values()) for b in each.bundles)
        names = {name for bundle in (*nodes, *bundles) for name in bundle}
        self.names = [*FIRST, *sorted(names.difference(FIRST))]
        self.capacity = [amounts(node, self.names) for node in nodes]
        self.free = list(self.capacity)
        for group, users in self.rules.groups.items():
            self.hours[f"@{group}"] = sum(self.hours[user] for user in users)
            for user in users:
                self.groups[user].append(f"@{group}")
        self.ahead = self.rules.half_life_s * AHEAD
        self._seat()
        for each in self.going.values():
            self._charge(each)

    def plan(self, ended: frozenset[str]) -> Plan:
        queue = []
        for entry in self._ranked(ended):
            asks, on, why = self._asks(entry), None, self._over_quota(entry)
            if why is None and self.first is None:
                on = self._place(asks, self.free)
                if on is None and self._place(asks, self.capacity) is None:
                    why = f"no nodes with room for {describe(_total(entry))}"
            elif why is None and self.rules.backfill:
                on = self._backfill(entry, asks)
            if why is not None:
                self.barred[entry.name] = why
            elif on is not None:
                self.held[entry.name] = _take(self.free, on, asks)
                self.on[entry.name], self.going[entry.name] = on, entry
                self._charge(entry)
            else:
                if self.first is None:
                    self._reserve(entry, asks)
                queue.append(entry)
        return Plan(
            start=tuple(self.on),
            preempt=tuple(self.victims),
            waiting=tuple(self._told(queue)),
            on=self.on,
        )

    def _charge(self, entry: Entry) -> None:
        self.score[entry.user] += share(entry) * self.ahead
        for name in (entry.user, *self.groups[entry.user]):
            self.gpus[name] += gpus(entry)
            self.hours[name] += self._hours(entry)

    def _hours(self, entry: Entry) -> float:
        """GPU-hours that a job is still to use; 0 if it does not say."""
        return gpus(entry) * (self._end(entry, 0) - self.now) / 3600

    def _end(self, entry: Entry, unknown: float = math.inf) -> float:
        seconds = unknown if entry.seconds is None else entry.seconds
        begun = self.now if entry.started is None else entry.started
        return self.now if entry.name in self.victims else max(self.now, begun + seconds)

    def _asks(self, entry: Entry) -> Asks:
        return tuple(amounts(bundle, self.names) for bundle in entry.bundles)

    def _seat(self) -> None:
        """Take what runs from the nodes: where it is said to be, else where it fits."""
        unknown = []
        for entry in self.going.values():
            if len(entry.on) == len(entry.bundles) and {*entry.on} <= {*range(len(self.free))}:
                self.held[entry.name] = _take(self.free, entry.on, self._asks(entry))
            else:
                unknown.append(entry)
        together = self._place([ask for each in unknown for ask in self._asks(each)], self.free)
        on = iter(together or ())  # one by one if a node was lost: some hold nothing
        for entry in unknown:
            asks = self._asks(entry)
            where = tuple(itertools.islice(on, len(asks))) or self._place(asks, self.free)
            self.held[entry.name] = _take(self.free, where, asks) if where else []

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
            heads = [(score[u], line[0].queued, line[0].name, u) for u, line in lines.items()]
            heapq.heapify(heads)
            while heads:
                user = heads[0][-1]
                order.append(lines[user].popleft())
                score[user] += share(order[-1]) * self.ahead
                if line := lines[user]:
                    heapq.heapreplace(heads, (score[user], line[0].queued, line[0].name, user))
                else:
                    heapq.heappop(heads)
        return order

    def _over_quota(self, entry: Entry) -> str | None:
        """Say which quota a job would exceed; the first one without room counts as if it ran."""
        asks, more = gpus(entry), self._hours(entry)
        for name in (entry.user, *self.groups[entry.user]) if asks else ():
            others = self.rules.quotas.get("") if name == entry.user else None
            if (quota := self.rules.quotas.get(name) or others) is None:
                continue
            has, most = self.gpus[name], quota.gpus
            if most is not None and has + asks > most:
                also = f" and asks for {asks:g}" if has < most else ""
                return f"quota: {name} has {has:g} of {most:g} GPUs{also}"
            used, week = self.hours[name], quota.gpu_hours_week
            if week is not None and (used >= week or used + more > week):
                also = f" and asks for {more:.1f}" if used < week else ""
                return f"quota: {name} has {used:.1f} of {week:g} GPU-hours a week{also}"
        return None

    def _place(self, asks: Sequence[Amounts], room: Sequence[Amounts]) -> tuple[int, ...] | None:
        try:
            return place(asks, room, STATES)
        except GaveUpError:
            return None

    def _without(self, names: Sequence[str]) -> list[Amounts]:
        """What is free when jobs that run have ended."""
        return _given(self.free, [one for name in names for one in self.held[name]])

    def _fits_without(self, asks: Asks, names: Sequence[str]) -> bool:
        return self._place(asks, self._without(names)) is not None

    def _ends(self) -> list[tuple[float, str]]:
        """When those that run end, if they say it: the next first, the preempted now."""
        ends = sorted((self._end(each), each.name) for each in self.going.values())
        return [each for each in ends if each[0] < math.inf]

    def _reserve(self, first: Entry, asks: Asks) -> None:
        """Hold back all behind a job; find out when it starts, and what it leaves."""
        self.first = first
        self._charge(first)
        self.victims = self._to_preempt(first, asks) if self.rules.preempt else ()
        for has in self.capacity:
            here = [ask for ask in asks if all(map(le, ask, has))]
            self.most.append(tuple(map(sum, zip([0] * len(has), *here, strict=True))))
        ends = self._ends()

        names, counts = [name for _, name in ends], range(len(ends) + 1)
        count = bisect_left(counts, True, key=lambda n: self._fits_without(asks, names[:n]))
        if count in counts:
            self.at, self.left = ends[count - 1][0], self._without(names[:count])
            _take(self.left, self._place(asks, self.left) or (), asks)

    def _to_preempt(self, first: Entry, asks: Asks) -> Sequence[str]:
        """Choose running jobs that make room: as few as possible, the youngest first."""
        lower = [e for e in self.going.values() if e.preemptible and e.priority < first.priority]
        lower.sort(key=lambda each: (-(each.started or 0), each.name))
        chosen = young = [each.name for each in lower]
        if not self._fits_without(asks, young):
            return ()
        sizes = range(1, len(young))
        sets = itertools.chain.from_iterable(itertools.combinations(young, n) for n in sizes)
        for few in itertools.islice(sets, VICTIMS):
            if self._fits_without(asks, few):
                return few
        for each in reversed(young):  # the older go on where the younger suffice
            fewer = [name for name in chosen if name != each]
            chosen = fewer if self._fits_without(asks, fewer) else chosen
        return chosen

    def _backfill(self, entry: Entry, asks: Asks) -> tuple[int, ...] | None:
        """Find a place that does not delay the first job."""
        if self.at is None and self._passes(entry):
            kind = "passes"
        elif self.at is None or entry.seconds is None:
            kind = "may never end"
        else:
            kind = "ends before" if self._end(entry) <= self.at else "runs beside"
        if (kind, asks) in self.failed or len(self.failed) >= BACKFILLED:
            return None  # within a plan, room only shrinks
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

    def _passes(self, entry: Entry) -> bool:
        """Whether a job may delay the first one."""
        first = self.first or entry
        waited = self.now - first.queued
        return entry.priority == first.priority and waited < PATIENCE_S

    def _told(self, queue: Sequence[Entry]) -> Iterator[Waiting]:
        begins = self._begins(queue)
        by_priority = sorted(self.waiting, key=lambda each: -each.priority)
        barred = [each for each in by_priority if each.name in self.barred]
        for place_, entry in enumerate((*queue, *barred), 1):
            why = self.barred.get(entry.name) or f"{self._reason(entry)} (place {place_})"
            yield Waiting(name=entry.name, place=place_, reason=why, begins=begins.get(entry.name))

    def _reason(self, entry: Entry) -> str:
        if entry is self.first and self.victims:
            return f"starts when {', '.join(self.victims)} stopped for it"
        total = _total(entry)
        free = map(sum, zip(*self.free, strict=True))
        lacks = zip(self.names, amounts(total, self.names), free, strict=True)
        if short := {name: total[name] for name, asks, has in lacks if asks > has}:
            return f"waits for {describe(short)}"
        if entry is self.first:
            return f"waits for nodes with room for {describe(total)}"
        return "waits for its turn"

    def _begins(self, queue: Sequence[Entry]) -> dict[str, float]:
        found: dict[str, float] = {}
        ends, when, room, held = self._ends(), self.now, list(self.free), dict(self.held)
        for entry in queue[:ESTIMATED] if len(ends) == len(self.going) else ():
            asks = self._asks(entry)
            while (on := self._place(asks, room)) is None and ends:
                when, name = heapq.heappop(ends)
                room = _given(room, held[name])
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


def _given(free: Sequence[Amounts], held: Held) -> list[Amounts]:
    room = list(free)
    for i, amount in held:
        room[i] = tuple(map(add, room[i], amount))
    return room


def _less(a: Amounts, b: Amounts) -> Amounts:
    return tuple(max(0, x - y) for x, y in zip(a, b, strict=True))


def _total(entry: Entry) -> Bundle:
    """All that a job asks for, GPUs first."""
    names = dict.fromkeys([*FIRST, *(name for bundle in entry.bundles for name in bundle)])
    total = {name: sum(bundle.get(name, 0) for bundle in entry.bundles) for name in names}
    return {name: amount for name, amount in total.items() if amount}
