"""`make down` asks before jobs or results are lost.

    python -m trainyard.client.pull.unpulled -s lambda

It names running jobs, and runs that end with the machines. If nobody can be asked, --yes lets runs
end, and --force jobs too. For stacks without an end time it names no runs: their results stay.
A cluster that is gone delays the destroy for some seconds, and does not keep a script from it.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import nullcontext
from dataclasses import dataclass

from trainyard import checkpoint_files
from trainyard.access.terminal import agree
from trainyard.checkpoint_files import MANIFEST
from trainyard.client import history, parallel, way
from trainyard.client import outputs as contract
from trainyard.client.console import warn
from trainyard.client.errors import DownError
from trainyard.client.job_server import JobServer
from trainyard.client.pull import marks
from trainyard.client.store import Store, open_store

DEADLINE_S = 15.0


@dataclass
class Ending:
    """The jobs and runs that end with a stack; None as long as they are unknown.

    Attributes:
        jobs: active ones, each with its run and user.
        runs: not completely pulled or copied, if the machines end.
    """

    jobs: list[str] | None = None
    runs: list[str] | None = None


def main() -> None:
    """Asks; ends with 1 or 130 if the user declines or cannot be asked."""
    parser = argparse.ArgumentParser(
        prog="python -m trainyard.client.pull.unpulled", description=__doc__
    )
    parser.add_argument("-s", "--stack", required=True)
    parser.add_argument("--yes", action="store_true", help="let runs end without a question")
    parser.add_argument("--force", action="store_true", help="let jobs end without a question")
    options = parser.parse_args()
    stack, ending = options.stack, Ending()
    reason = ""
    try:
        parallel.start(_look, stack, ending).result(DEADLINE_S)
    except FutureTimeoutError:
        reason = f"no answer within {DEADLINE_S:g} s"
    except Exception as error:  # whatever it is, the user decides
        reason = str(error)
    except KeyboardInterrupt:
        sys.exit(130)
    if ending.jobs is None:
        warn(f"warning: cannot tell which jobs run in stack {stack!r} ({reason})")
    elif ending.jobs:
        warn(f"warning: these jobs run, and end with stack {stack!r}: {', '.join(ending.jobs)}")
    if ending.jobs is not None and ending.runs is None:
        warn(f"warning: cannot tell which runs of stack {stack!r} were not pulled ({reason})")
    elif ending.runs:
        warn(
            f"warning: these runs were not pulled, and end with the machines of stack {stack!r}: "
            f"{', '.join(ending.runs)}; bring one home with `train pull RUN -s {stack}`"
        )
    _agree(ending, yes=options.yes or options.force, force=options.force)


def _agree(ending: Ending, *, yes: bool, force: bool) -> None:
    """Go on only if the user agrees to the losses."""
    lost = bool(ending.jobs) and not force
    if not lost and (yes or (ending.jobs == [] and ending.runs == [])):
        return
    if sys.stdin.isatty() and not yes:
        try:
            agreed = agree("End the stack?")
        except KeyboardInterrupt:
            sys.exit(130)
        if not agreed:
            sys.exit("nothing was changed")
    elif lost:
        sys.exit("error: jobs run: wait for them, end them with train stop, or add FORCE=1")
    elif ending.jobs is not None:
        # A cluster that does not answer is often dead already: a script may end it.
        sys.exit("error: nobody can be asked: pull the runs, or add YES=1")


def unpulled(store: Store) -> list[str]:
    """Return the names of the runs that were not completely pulled or replicated.

    Raises:
        ClientError: the store cannot be read.
    """
    return [run.name for run in history.list_runs(store) if not _is_home(store, run)]


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
    mark = marks.Mark(next(whole, ""), len(run.metrics), marks.inner(names))
    return any(marks.read(store, run.name, name) == mark for name in marks.ALL)


def _look(stack: str, ending: Ending) -> None:
    """Fill in the ending, in order: the first is known even if the rest does not answer."""
    try:
        outputs = contract.of_state(stack)
    except DownError:  # destroy says so
        ending.jobs, ending.runs = [], []
        return
    with way.tunnel(outputs, warn) or nullcontext() as opened:
        reached = opened.outputs if opened else outputs
        ending.jobs = [job.label for job in JobServer(reached).jobs() if not job.status.ended]
        ending.runs = unpulled(open_store(reached)) if outputs.expires_at is not None else []


if __name__ == "__main__":
    main()
