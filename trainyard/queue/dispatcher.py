"""Starts jobs when it is their turn, watches them, and writes down how they end.

A start is committed before the head is asked, under an id that follows from the record. So whoever
goes on after a kill asks for the same id, and the head has it once. A job that ran and that the
head does not know was lost with its former head: it waits again while it has retries left.
"""

import asyncio
import json
import math
import secrets
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlalchemy.exc import DBAPIError

from trainyard import yielding
from trainyard.failpoints import reach
from trainyard.packing import Bundle
from trainyard.queue import order, submission
from trainyard.queue.head import Head, HeadAwayError, RefusedError, Seat, outcome
from trainyard.queue.low_use import NEVER, Bounds, LowUse
from trainyard.queue.models import FAILED, RUNNING, STARTING, STOPPED, WAITING, Job, Machine
from trainyard.queue.order import Entry, Rules, Waiting
from trainyard.queue.packages import Packages
from trainyard.queue.records import ExistsError, FullError, Records, TakenError

EVERY_S = 1.0
IDLE_S = 5.0  # without jobs
LEASE_S = 15.0
PRUNE_S = 3600.0
SEE_S = 15.0  # between two looks at the machines, for the ledger
USE_S = 30.0  # between two looks at the use of GPUs
COST = "cost"  # metadata: where a job asks what this start costs
GROUP_LABEL = "group"  # of nodes, by cluster/ray_node.py
AT_ONCE = 4  # starts; each costs the head a process
YIELD_S = 120.0  # in which a job stores a checkpoint and ends, when asked to make room
REFUSED_S = 120.0  # for which a head that is not ready is asked to take a job
LOST = "the head was replaced"
FAULTS = (AttributeError, KeyError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A node that the stack declares; one on demand starts when jobs ask for it."""

    bundle: Bundle
    on_demand: bool = False


def has_yielded(job: Job, ended: str) -> bool:
    """Whether a start that has ended so at the head did it because it was asked to."""
    return ended in (FAILED, STOPPED) and job.yields is not None and not job.stop


class Dispatcher:
    """The only one of a database that starts jobs, while it holds the lease.

    Attributes:
        places: what the waiting jobs wait for, by id, as of the last plan.
        low: which running jobs leave their GPUs unused.
        stepped: when it last did its work, by the monotonic clock.
        away: whether the head did not answer then.
    """

    def __init__(
        self,
        records: Records,
        packages: Packages,
        head: Head,
        rules: Rules,
        declared: Sequence[Declared] = (),
        prices: Mapping[str, float] = MappingProxyType({}),  # $ an hour, by group of nodes
        me: str = "",
        address: str = "",  # host:port of the queue for jobs
        budget: float = math.inf,  # $ a month
        low: Bounds = NEVER,
    ) -> None:
        self.low, self._used = LowUse(low), -USE_S
        self._records, self._packages, self._head = records, packages, head
        self._rules, self._declared, self._prices = rules, declared, prices
        self._saw, self._address, self._budget = -SEE_S, address, budget
        self._me, self._leased, self._pruned = me or secrets.token_hex(8), -LEASE_S, -PRUNE_S
        self._tried: dict[str, float] = {}  # first refusal of a start, by attempt
        self._changed = asyncio.Event()
        self.places: dict[str, Waiting] = {}
        self.stepped, self.away = time.monotonic(), False

    def changed(self) -> None:
        """Have it look now."""
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled; what nobody expects ends the process, and a new one goes on."""
        while True:
            self._changed.clear()
            try:
                busy = await self.step()
                self.stepped, self.away = time.monotonic(), False
            except HeadAwayError:
                self.stepped, self.away, busy = time.monotonic(), True, True
            except DBAPIError as error:  # of a database that is away: /health tells if it stays
                print(f"queue: the database: {error.orig}", file=sys.stderr, flush=True)  # noqa: T201
                busy = True
            try:
                async with asyncio.timeout(EVERY_S if busy else IDLE_S):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def step(self) -> bool:
        """Look once; returns whether jobs wait or run.

        Raises:
            HeadAwayError: the head does not answer. What it had not done is done in the next step.
        """
        if not await self._hold():
            return False
        await self._make_due()
        if time.monotonic() - self._pruned > PRUNE_S:
            needed = await asyncio.to_thread(self._records.prune, time.time())
            await asyncio.to_thread(self._packages.prune, needed)
            self._pruned = time.monotonic()
        if time.monotonic() - self._saw > SEE_S:
            found = machines(await self._head.nodes(), self._prices, time.time())
            await asyncio.to_thread(self._records.see, found)
            self._saw = time.monotonic()
        active = await asyncio.to_thread(self._records.active)
        if all(job.every is not None for job in active):
            self.places = {}
            return False
        known = await self._head.jobs()
        if begun := [job for job in active if job.state != WAITING]:
            await _gather(self._watch(job, known.get(job.name)) for job in begun)
        await self._start(active, known)
        return True

    async def _make_due(self) -> None:
        """Make the jobs of entries whose time has come; of times that were missed, one."""
        now = time.time()
        entries = await asyncio.to_thread(self._records.due, now)
        if entries and await asyncio.to_thread(self._records.spent, now) >= self._budget:
            return
        for repeated in entries:
            try:
                due = submission.next_time(repeated.every or "", now)
                job = submission.made(repeated, now)
                runs, keep = submission.runs(job), self._records.add
                await asyncio.to_thread(keep, job, runs, own=True, entry=repeated, due=due)
            except (ExistsError, TakenError):
                await asyncio.to_thread(self._records.put_off, repeated, due)
            except FullError:  # it stays due
                return
            except FAULTS as error:  # written by hand
                why = f"its record cannot be read: {type(error).__name__}"
                await self._finish(repeated, FAILED, why)

    async def _hold(self) -> bool:
        """Take or keep the lease; whether it is ours."""
        asked = time.clock_gettime(time.CLOCK_BOOTTIME)
        mine = await asyncio.to_thread(self._records.lease, self._me, time.time(), LEASE_S)
        self._leased = asked if mine else -LEASE_S
        return mine

    async def _still_mine(self) -> bool:
        """Whether the lease has not ended meanwhile, such as while this process was stopped."""
        late = time.clock_gettime(time.CLOCK_BOOTTIME) - self._leased > LEASE_S / 2
        return await self._hold() if late else True

    async def _watch(self, job: Job, found: Mapping[str, Any] | None) -> None:
        """Write down what became of a job that was started."""
        if found is None and job.state == STARTING:
            if job.stop:
                await self._finish(job, STOPPED, "it was stopped before it started")
            else:
                await self._post(job)
            return
        # Of a job that ran, the list alone is no proof.
        ended = "lost" if found is None else outcome(found)
        if found is None and await self._head.job(job.name) is not None:
            return
        if ended == "lost":
            await self._lost(job, LOST if found is None else str(found.get("message") or LOST))
        elif has_yielded(job, ended):
            await self._yielded(job, found)
        elif ended and found is not None:
            await self._finish(job, ended, str(found.get("message") or ""), found)
        else:
            if job.state == STARTING:
                await asyncio.to_thread(self._records.running, job)
            late = job.yields is not None and time.time() - job.yields > YIELD_S
            if job.stop or late:
                await self._head.stop(job.name)
            elif job.yields is not None:
                why = yielding.FOR_GOOD.format(job.reason) if job.reason else yielding.FOR_ANOTHER
                await self._head.ask_to_yield(job.name, why)

    async def _yielded(self, job: Job, found: object) -> None:
        """Have a job wait again that has made room; one that was asked to end for good ends."""
        if job.reason:
            await self._finish(job, STOPPED, job.reason, found)
        else:
            await asyncio.to_thread(self._records.requeue, job, time.time())

    async def _lost(self, job: Job, why: str) -> None:
        if job.stop:
            await self._finish(job, STOPPED, f"it was stopped, and {why}")
        elif job.reason:
            await self._finish(job, STOPPED, f"{job.reason}, and {why}")
        elif job.retries > 0:
            await asyncio.to_thread(self._records.requeue, job, time.time())
        else:
            await self._finish(job, FAILED, f"{why}, and no retries are left")

    async def _finish(self, job: Job, state: str, reason: str, end: object = None) -> None:
        await asyncio.to_thread(self._records.finish, job, state, reason, time.time(), end)
        self._tried.pop(job.name, None)

    async def _start(self, found: Sequence[Job], known: Mapping[str, Mapping[str, Any]]) -> None:
        active = [job for job in found if job.every is None]
        waiting = {job.id: job for job in active if job.state == WAITING}
        entries: dict[str, Entry] = {}
        for job in active:
            try:
                entries[job.id] = entry(job)
            except FAULTS as error:  # written by hand
                waiting.pop(job.id, None)
                why = f"its record cannot be read: {type(error).__name__}"
                await self._finish(job, FAILED, why)
        await self._look_at_gpus(active, entries, known)
        queued = [entries[name] for name in waiting]
        alive = {job.id for job in found if job.state in (WAITING, STARTING, RUNNING)}
        ended = {name for each in queued for name in each.after if name not in alive}
        # What needs nothing waits for nobody.
        at_once = {e.name for e in queued if not e.bundles and not {*e.after} - ended}
        queued = [each for each in queued if each.name not in at_once]
        plan = order.Plan(start=(), preempt=(), waiting=(), on={})
        if queued:
            own = {job.name: str(known.get(job.name, {}).get("job_id") or "") for job in active}
            free, held = await self._head.free(own)
            nodes = self._with_more(free)
            running = [
                replace(entries[job.id], on=seats(entries[job.id].bundles, held.get(job.name, ())))
                for job in active
                if job.state in (STARTING, RUNNING)
            ]
            now = time.time()
            use, week = await asyncio.to_thread(self._records.use, now, self._rules.half_life_s)
            plan = await asyncio.to_thread(
                order.plan, queued, running, nodes, use, self._rules, now, ended, week
            )
        self.places = {each.name: each for each in plan.waiting}
        chosen = (*at_once, *plan.start)
        for job in active:
            if job.id in plan.preempt and job.state == RUNNING and job.yields is None:
                await asyncio.to_thread(self._records.ask_to_yield, job, time.time())
        await _gather(self._begin(waiting[name], entries[name]) for name in chosen)

    async def _look_at_gpus(
        self,
        active: Sequence[Job],
        entries: Mapping[str, Entry],
        known: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Note which jobs leave their GPUs unused, and ask those for their end that do it long."""
        if not self.low.bounds.percent or time.monotonic() - self._used <= USE_S:
            return
        running = [job for job in active if job.state == RUNNING and job.id in entries]
        asked = {
            job.name: (str(known.get(job.name, {}).get("job_id")), count)
            for job in running
            if (count := order.gpus(entries[job.id]))
        }
        if not asked:
            return
        self._used, now = time.monotonic(), time.time()
        with suppress(HeadAwayError):  # it keeps no job from starting
            self.low.look(await self._head.gpus(), asked, now)
            for job in running:
                if job.yields is None and not job.stop and (why := self.low.stops(job.name)):
                    await asyncio.to_thread(self._records.ask_to_yield, job, now, why)

    def _with_more(self, alive: list[Bundle]) -> list[Bundle]:
        """Return the living nodes, and those on demand that would start."""
        if not any(each.on_demand for each in self._declared):
            return alive
        kinds = Counter(_kind(each) for each in alive)
        kinds.subtract(_kind(each.bundle) for each in self._declared if not each.on_demand)
        more = []
        for each in (each.bundle for each in self._declared if each.on_demand):
            kinds[_kind(each)] -= 1
            if kinds[_kind(each)] < 0:
                more.append(each)
        return [*alive, *more]

    async def _begin(self, job: Job, asked: Entry) -> None:
        counts = order.share(asked), order.gpus(asked)
        if await asyncio.to_thread(self._records.begin, job, time.time(), *counts):
            await self._post(job)

    async def _post(self, job: Job) -> None:
        """Give the head the packages that it lacks, then the job under its attempt's id."""
        try:
            whole = await asyncio.to_thread(self._records.get, job.id)
            if whole is None:  # somebody removed it by hand
                return
            request = {**json.loads(whole.request), "submission_id": job.name}
            request.pop("job_id", None)
            at = f"{self._address}/api/queue/cost?since={job.started}"
            request["metadata"] = {**(request.get("metadata") or {}), COST: at}
            for name in json.loads(job.packages):
                if not await self._head.has_package(name):
                    if not self._packages.has(name):
                        raise RefusedError(f"neither the head nor the queue has package {name}")
                    await self._head.put_package(name, self._packages.path(name))
            if not await self._still_mine():
                return
            reach("queue.post")
            await self._head.submit(request)
            reach("queue.posted")
        except RefusedError as refused:
            await self._finish(job, FAILED, f"the head did not take it: {refused}")
            return
        except FAULTS as error:  # written by hand
            await self._finish(job, FAILED, f"its record cannot be read: {type(error).__name__}")
            return
        except HeadAwayError as error:
            first = self._tried.setdefault(job.name, time.monotonic())
            if not error.answered or time.monotonic() - first < REFUSED_S:
                raise
            await self._finish(job, FAILED, f"the head did not take it: {error}")
            return
        await asyncio.to_thread(self._records.running, job)
        self._tried.pop(job.name, None)


def entry(job: Job) -> Entry:
    """Return a job as the order takes it; raises one of FAULTS."""
    return Entry(
        name=job.id,
        user=job.user,
        priority=job.priority,
        queued=job.queued,
        bundles=tuple(json.loads(job.bundles)),
        after=tuple(json.loads(job.after)),
        seconds=job.seconds,
        started=None if job.state == WAITING else job.started,
        preemptible=job.retries > 0,
    )


def seats(bundles: Sequence[Bundle], held: Sequence[Seat]) -> tuple[int, ...]:
    """Return the node of each bundle by what a job holds; () while it does not hold all of them."""
    left, found = [*held], []
    for bundle in bundles:
        same = (each for each in left if bundle.items() <= each[1].items())
        if (seat := next(same, None)) is None:
            return ()
        left.remove(seat)
        found.append(seat[0])
    return tuple(found)


def machines(
    nodes: Sequence[Mapping[str, Any]], prices: Mapping[str, float], now: float
) -> list[Machine]:
    """Return nodes of Ray's state API for the ledger; `prices` are by group, in $ an hour.

    Raises:
        HeadAwayError: they are not what Ray's API has.
    """
    try:
        return [
            Machine(
                node=str(each["node_id"]),
                group=(group := str((each["labels"] or {}).get(GROUP_LABEL, ""))),
                price=prices.get(group, 0.0),
                share=order.share(_entry(each["resources_total"] or {})),
                began=each["start_time_ms"] / 1000,
                seen=now if each["state"] == "ALIVE" else each["end_time_ms"] / 1000,
            )
            for each in nodes
            if each["state"] == "ALIVE" or each["end_time_ms"]
        ]
    except FAULTS as error:
        raise HeadAwayError(f"nodes: {type(error).__name__}") from None


def _entry(bundle: Bundle) -> Entry:
    return Entry(name="", user="", priority=0, queued=0.0, bundles=(bundle,))


def _kind(bundle: Bundle) -> tuple[float, float]:
    return bundle.get("CPU", 0.0), bundle.get("GPU", 0.0)


async def _gather(works: Any) -> None:
    """Do some works, AT_ONCE at a time; all have ended when the first error is raised."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(work: Any) -> None:
        async with gate:
            await work

    found = await asyncio.gather(*(one(work) for work in works), return_exceptions=True)
    for error in (each for each in found if isinstance(each, BaseException)):
        raise error
