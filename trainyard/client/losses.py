"""`train down`, `up --force` and `rotate` ask before jobs or results are lost.

    python -m trainyard.client.losses -s lambda [--yes | --refuse]

A cluster that is gone delays the end of its stack for some seconds, and does not keep a script from
it. The module's own command names the jobs that a new head ends: with --yes it does not ask, and
with --refuse it ends with an error if there are any.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field

from trainyard.access import parallel
from trainyard.access.terminal import agree
from trainyard.client import connection, costs, history, run_list
from trainyard.client import outputs as contract
from trainyard.client.console import warn
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import DownError
from trainyard.client.job_server import Job, JobServer
from trainyard.client.pull import marks
from trainyard.client.state import TRAIN_WORKER, Actor, ClusterState, RayNode
from trainyard.client.store import open_store
from trainyard.resume import checkpoint_files
from trainyard.resume.checkpoint_files import MANIFEST
from trainyard.store.objects import Store

DEADLINE_S = 15.0
RESUMING = "TRAINYARD_RESUMING"  # runs by the address of their node, as JSON


@dataclass
class Losses:
    """The jobs and runs that end with a stack; None as long as they are unknown."""

    jobs: list[str] | None = None  # active ones, each with its run and user
    users: list[str] = field(default_factory=list)  # who submitted them
    runs: list[str] | None = None  # not completely pulled or copied, if the machines end
    bills: str = ""  # machines that cost money until they end, and how much; "" for none
    month: str = ""  # what all machines have cost this month; "" where no price is known
    reason: str = ""  # why one of them is unknown
    # Runs that resume elsewhere if a worker's node restarts, by its address; {} if unknown.
    resuming: dict[str, list[str]] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """By which the engine names the runs on the lines of resources; none without runs."""
        return {RESUMING: json.dumps(self.resuming)} if self.resuming else {}


def main() -> None:
    """Asks about a new head; ends with 1 or 130 if the user declines or cannot be asked."""
    parser = argparse.ArgumentParser(
        prog="python -m trainyard.client.losses", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("-s", "--stack", required=True)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--refuse", action="store_true", help="refuse if jobs would end")
    options = parser.parse_args()
    agree_to_a_new_head(options.stack, yes=options.yes, refuse=options.refuse)


def find(stack: str, *, runs: bool) -> Losses:
    """Return what a stack would lose, as far as it is known within DEADLINE_S.

    With `runs` its machines end, and with them the runs there; without, nodes may restart.
    """
    losses = look(stack, DEADLINE_S, runs=runs)
    if losses.jobs is None:
        warn(f"warning: cannot tell which jobs run in stack {stack!r} ({losses.reason})")
    return losses


def look(stack: str, seconds: float, *, runs: bool = False) -> Losses:
    """Do the same within a time, without a warning."""
    losses = Losses()
    try:
        parallel.start(_look, stack, losses, runs).result(seconds)
    except FutureTimeoutError:
        losses.reason = f"no answer within {seconds:g} s"
    except Exception as error:  # whatever it is, the user decides
        losses.reason = str(error)
    except KeyboardInterrupt:
        sys.exit(130)
    return losses


def _look(stack: str, losses: Losses, runs: bool) -> None:
    """Fill in the losses, in order: the first is known even if the rest does not answer."""
    try:
        outputs = contract.of_state(stack)
    except DownError:  # `up` and `destroy` say so
        losses.jobs, losses.runs = [], []
        return
    prices = [node.hourly_cost for node in outputs.nodes if node.launched and node.hourly_cost]
    losses.bills = f"{len(prices)} machines, {sum(prices):.2f} $/h" if prices else ""
    with connection.to(outputs) as reached:
        state, told = ClusterState(reached.outputs), parallel.start(costs.month, reached.outputs)
        placed = None if runs else (parallel.start(state.actors), parallel.start(state.nodes))
        jobs = [job for job in JobServer(reached.outputs).jobs() if not job.status.ended]
        losses.users = sorted({job.user for job in jobs if job.user})
        losses.jobs, losses.month = [job.label for job in jobs], told.result()
        with suppress(DashboardError):  # the names on lines of a preview, no more
            if placed:
                losses.resuming = _resuming(jobs, placed[0].result(), placed[1].result())
        # What a reservation ends on this machine keeps its results.
        away = outputs.reserved_from is None or outputs.ssh is not None
        rented = outputs.ssh is not None and outputs.ssh.rented
        ends = rented or (outputs.expires_at is not None and away)
        losses.runs = unpulled(open_store(reached.outputs)) if runs and ends else []


def _resuming(
    jobs: Iterable[Job], actors: Iterable[Actor], nodes: Iterable[RayNode]
) -> dict[str, list[str]]:
    """Return the runs of which Ray Train's workers are on each node, without the head."""
    names = {job.job_id: job.run for job in jobs if job.run}
    there = {node.id: node.address for node in nodes if not node.is_head}
    found: dict[str, list[str]] = {}
    for actor in actors:
        if actor.kind == TRAIN_WORKER and actor.node in there and actor.job in names:
            found.setdefault(there[actor.node], []).append(names[actor.job])
    return {address: sorted({*runs}) for address, runs in found.items()}


def agree_to_a_new_head(stack: str, *, yes: bool, refuse: bool = False) -> None:
    """Name the jobs that a new head ends, and ask; `refuse` refuses if there are any.

    Raises:
        SystemExit: the user declines or cannot be asked.
    """
    losses = find(stack, runs=False)
    names = ["all that run there"] if losses.jobs is None else losses.jobs
    if not names:
        return
    warn(f"a new head of stack {stack!r} ends these jobs: {', '.join(names)}")
    if refuse:
        sys.exit("error: wait for them, end them with train stop, or add --force (make: FORCE=1)")
    if not yes:
        if not sys.stdin.isatty():
            sys.exit("error: nobody can be asked: add --yes, which does not ask (make: FORCE=yes)")
        _ask("Go on?")


def agree_to_the_end(stack: str, *, yes: bool, force: bool) -> None:
    """Show what ends with a stack: jobs, users, runs, costs; ask if something is lost.

    `yes` lets runs end that were not pulled, and `force` jobs too.

    Raises:
        SystemExit: the user declines or cannot be asked.
    """
    losses = find(stack, runs=True)
    facts = {
        "jobs": ", ".join(losses.jobs or []),
        "users": ", ".join(losses.users),
        "runs": f"{', '.join(losses.runs)}; they were not pulled: `train pull RUN -s {stack}`"
        if losses.runs
        else "",
        "bills": losses.bills,
    }
    if any(facts.values()):
        warn(f"with stack {stack!r} these end:")
    for name, fact in facts.items():
        if fact:
            warn(f"  {name:<5}  {fact}")
    if losses.jobs is not None and losses.runs is None:
        warn(
            f"warning: cannot tell which runs of stack {stack!r} were not pulled ({losses.reason})"
        )
    lost = bool(losses.jobs) and not force
    if not lost and (yes or force or (losses.jobs == [] and losses.runs == [])):
        return
    if sys.stdin.isatty() and not (yes or force):
        _ask("End the stack?")
    elif lost:
        sys.exit(
            "error: jobs run: wait for them, end them with train stop, or add --force "
            "(make: FORCE=1)"
        )
    elif losses.jobs is not None:
        # A cluster that does not answer is often dead already: a script may end it.
        sys.exit("error: nobody can be asked: pull the runs, or add --yes (make: YES=1)")


def _ask(question: str) -> None:
    try:
        agreed = agree(question)
    except KeyboardInterrupt:
        sys.exit(130)
    if not agreed:
        sys.exit("nothing was changed")


def unpulled(store: Store) -> list[str]:
    """Return the names of the runs that were not completely pulled or replicated.

    Raises:
        ClientError: the store cannot be read.
    """
    return [run.name for run in run_list.list_runs(store) if not _is_home(store, run)]


def _is_home(store: Store, run: history.RunRecord) -> bool:
    """Whether a mark names the newest checkpoint that was stored whole, all epochs and trials."""
    names = store.listed(run.name)
    folders = {name.partition("/")[0] for name in names}
    stored = filter(checkpoint_files.NAME.fullmatch, folders)
    whole = (
        name
        for name in sorted(stored, key=checkpoint_files.order, reverse=True)
        if checkpoint_files.is_manifest(store.get(f"{run.name}/{name}/{MANIFEST}"))
    )
    mark = marks.PullMark(next(whole, ""), run.epochs, marks.inner(names))
    return any(marks.read(store, run.name, name) == mark for name in marks.ALL)


if __name__ == "__main__":
    main()
