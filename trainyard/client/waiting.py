"""The reason why a job waits: its unmet demand, the jobs that hold it now, and a remedy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from trainyard.access import typed
from trainyard.access.outputs import JOB_START_TIMEOUT_SECONDS
from trainyard.client import feasibility, fields, health
from trainyard.client.dashboard import DashboardError
from trainyard.client.job_server import ACTIVE, Job, Status
from trainyard.client.outputs import StackOutputs
from trainyard.client.state import UNPLACED, Actor, ClusterState, Reservation
from trainyard.packing import Bundle, describe

RUNS = "Job is currently running."  # of Ray, which says nothing else
OTHER = "another program"  # one that was not submitted
ONE = ([{"CPU": 1.0}], [{"GPU": 1.0}])
MOST_NAMED = 3  # jobs in a reason


@dataclass(frozen=True, kw_only=True)
class Wait:
    """The reason why a job waits."""

    # The bundles that Ray cannot place, as the dashboard's Demands have it; "" if it does not say.
    demand: str
    reason: str  # a sentence with what to do
    ends: str  # when Ray gives the job up; "" if it never does


class Reasons:
    """Why jobs wait at one moment: the cluster is asked once, and need not answer.

    Args:
        jobs: all jobs of the cluster, to name the holders of a demand.
        outputs: those of its stack.
        state: who is asked.
    """

    def __init__(self, jobs: Sequence[Job], outputs: StackOutputs, state: ClusterState) -> None:
        self._jobs, self._outputs, self._state = jobs, outputs, state

    def of(self, job: Job) -> Wait | None:
        """Return what a job waits for, None when it does not wait or the reason is unknown."""
        if job.status not in ACTIVE:
            return None
        demand = self._demand(job)
        try:
            asked = demand or fields.bundles(json.loads(job.metadata.get("demand") or "[]"))
            reason = _never(asked, job, self._outputs)
        except (ValueError, RecursionError) as error:  # anyone can write the job's metadata
            reason = f"the record of what it asks for is unreadable ({fields.reason(error)})"
        if reason is None and demand:
            reason = _not_now(demand, self._held, self._nodes, self._outputs)
        if reason is None:
            return None
        return Wait(demand=_counted(demand), reason=reason, ends=_ends(job, self._outputs))

    @cached_property
    def _answers(self) -> tuple[list[Actor], list[Reservation]]:
        """Living actors, and reservations; none without an answer."""
        try:
            return self._state.actors(), self._state.reservations()
        except DashboardError:
            return [], []

    @cached_property
    def _nodes(self) -> int:
        """How many nodes live; without an answer all do."""
        try:
            return len(self._state.nodes())
        except DashboardError:
            return len(self._outputs.nodes)

    def _demand(self, job: Job) -> list[Bundle]:
        """Return the bundles of a job's entrypoint and of its workers that Ray has yet to place."""
        actors, groups = self._answers
        found = [
            actor.bundle
            for actor in actors
            if actor.state in UNPLACED
            and actor.bundle
            and (actor.submission == job.submission_id or (job.job_id and actor.job == job.job_id))
        ]
        for group in groups:
            if group.state in UNPLACED and job.job_id and group.job == job.job_id:
                found += group.bundles
        return found

    @cached_property
    def _held(self) -> dict[str, Bundle]:
        """The resources that each job holds, by a name for it."""
        actors, groups = self._answers
        names = {job.job_id: _name(job) for job in self._jobs if job.job_id}
        names |= {job.submission_id: _name(job) for job in self._jobs if job.submission_id}
        held: dict[str, Bundle] = {}
        for actor in actors:
            if actor.state == "ALIVE":
                _add(held, names.get(actor.submission or actor.job, OTHER), actor.bundle)
        for group in groups:
            if group.state == "CREATED":
                for bundle in group.bundles:
                    _add(held, names.get(group.job, OTHER), bundle)
        return {
            name: held[name] for name in sorted(held, key=lambda who: who == OTHER) if held[name]
        }


def told(job: Job) -> str:
    """Return what a queue says of a job that runs, such as that its GPUs are unused; else ""."""
    said = job.message.strip().partition("\n")[0]
    return said if job.status is Status.RUNNING and said != RUNS else ""


def _never(asked: list[Bundle], job: Job, outputs: StackOutputs) -> str | None:
    why = feasibility.shortfall(asked, outputs.nodes)
    if why is None:
        return None
    return (
        f"it {why}; to run it {feasibility.growth(asked, outputs)}, "
        f"or stop it (`train stop {typed.argument(job.submission_id)}`) and ask for less"
    )


def _not_now(
    asked: list[Bundle], held: dict[str, Bundle], alive: int, outputs: StackOutputs
) -> str:
    nodes = outputs.nodes
    used = []
    for name in dict.fromkeys(name for bundle in asked for name in bundle):
        who = [holder for holder, bundle in held.items() if bundle.get(name)]
        has, all_ = (
            describe({name: sum(bundle.get(name, 0) for bundle in each)}).split(" ", 1)
            for each in (held.values(), map(feasibility.capacity, nodes))
        )
        if who:
            shown = ", ".join(who[:MOST_NAMED])
            more = f" and {len(who) - MOST_NAMED} more" if who[MOST_NAMED:] else ""
            many = "s" * (name in ("CPU", "GPU"))
            used.append(f"{has[1]} of {all_[1]} {name}{many} are in use by {shown}{more}")
    # Nodes on demand are started for waiting jobs, which takes some seconds.
    always = sum(not node.on_demand for node in nodes)
    lost = (
        f"only {alive} of {len(nodes)} nodes are alive ({health.remedy(outputs)}); "
        if alive < always
        else f"{len(nodes) - alive} nodes on demand are not started, or start now; "
        if alive < len(nodes)
        else ""
    )
    what = f"a free {next(iter(asked[0]))}" if asked in ONE else _counted(asked)
    by = "; ".join(used) or "Ray lists no job that has it; tasks may"
    return f"waits for {what}: {lost}{by}"


def _ends(job: Job, outputs: StackOutputs) -> str:
    timeout = outputs.job_start_timeout
    if job.status != Status.PENDING or not job.start_time or timeout is None:
        return ""
    moment = datetime.fromtimestamp(job.start_time / 1000, UTC) + timeout
    return (
        f"Ray fails it at {moment.astimezone():%H:%M:%S} unless it has started "
        f"({timeout.total_seconds():g} s, setting {JOB_START_TIMEOUT_SECONDS})"
    )


def _counted(bundles: Sequence[Bundle]) -> str:
    """Bundles in words, equal ones counted: `2 times GPU 1, CPU 4`."""
    return "; ".join(
        f"{count} times {text}" if (count := list(bundles).count(bundle)) > 1 else text
        for bundle in feasibility.distinct(bundles)
        for text in [describe(bundle)]
    )


def _name(job: Job) -> str:
    return f"run {job.run}" if job.run else f"job {job.submission_id or job.job_id}"


def _add(held: dict[str, Bundle], who: str, bundle: Bundle) -> None:
    total = held.setdefault(who, {})
    for name, amount in bundle.items():
        total[name] = total.get(name, 0) + amount
