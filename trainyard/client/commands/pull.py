"""`train pull`: a run's results come here, once or as long as its job runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Outputs, RunName, Stack, reach, until_interrupted
from trainyard.client.console import say
from trainyard.client.errors import ClientError
from trainyard.tracking import run_folder

if TYPE_CHECKING:
    from trainyard.client.job_server import JobServer
    from trainyard.client.pull.transfer import Pulled, Transfer

RESULTS = Path("results")
POLL_S = 5.0  # between two passes while a job runs


def pull(
    context: typer.Context,
    run: RunName,
    to: Annotated[
        Path, typer.Option("--to", help="Folder for runs; each run has a folder of its name there.")
    ] = RESULTS,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Pull until the run's job has ended.")
    ] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Bring a run's records and its newest checkpoint here, if they have changed."""
    from trainyard.client import history, left_results, store
    from trainyard.client.pull.transfer import Transfer

    history.valid_name(run)
    read = contract.read if follow else left_results.read
    stack_outputs = reach(context, read(stack, outputs))
    place = store.open_store(stack_outputs)
    transfer = Transfer(place, run, to / run)
    is_ours = to == RESULTS and not to.exists()
    stopped = f"\nstopped: complete files are in {to / run}, and the same command goes on"
    try:
        with until_interrupted(stopped):
            if follow:
                from trainyard.client import jobs

                server = jobs.connect(stack_outputs)
                say(f"pulling run {run} while its job runs; Ctrl-C stops the pull only")
                patience = jobs.patience(stack_outputs)
                ended = _follow(server, run, transfer, lambda new: _tell(run, new, to), patience)
                say(f"its job has ended: {ended}" if ended else "it has no running job")
                return
            pulled = transfer.run()
    finally:
        if is_ours and to.exists():
            with suppress(OSError):  # the disk is full, which was told
                (to / ".gitignore").write_text("*\n")  # uploads of jobs leave it out too
    if pulled is None:
        raise history.no_run(place, run)
    _tell(run, pulled, to)


def _follow(
    server: JobServer,
    run: str,
    transfer: Transfer,
    tell: Callable[[Pulled], None],
    lost_after_s: float,
) -> str:
    """Pulls changes until no job of the run is active, and then once more.

    `tell` is called with each pass that brought something, and the last.

    Returns:
        How the last job ended, as "SUCCEEDED"; "" if the server knows no job of the run.
    """
    from trainyard.client import jobs
    from trainyard.client.dashboard import DashboardError

    answered = time.monotonic()
    while True:
        active, ended = True, ""
        try:
            found = [job for job in jobs.submissions(server) if job.run == run]
            active = any(not job.status.ended for job in found)
            ended = str(found[0].status) if found else ""
            answered = time.monotonic()
        except DashboardError as error:
            if time.monotonic() - answered > lost_after_s:
                raise ClientError(
                    f"lost the job server for {lost_after_s:g} s ({error}): cannot tell whether "
                    f"run {run} goes on; pull again without --follow to get the store's files"
                ) from None
        # Asked before this pass, which so sees all that a job stored before its end.
        pulled = transfer.run()
        if pulled is None and not active:
            raise ClientError(f"no run is called {run!r}, and no job of it waits: see `train runs`")
        if pulled is not None and (pulled.brought or not active):
            tell(pulled)
        if not active:
            return ended
        time.sleep(POLL_S)


def _tell(run: str, pulled: Pulled, to: Path) -> None:
    """Prints one line about the result of a pass."""
    parts = []
    if pulled.transfer:
        parts.append(f"{pulled.checkpoint} ({pulled.transfer})")
    if pulled.records:
        parts.append(f"{pulled.records} files of records")
    brought = " and ".join(parts) or "nothing new"
    say(f"run {run}: {brought} in {to / run}")
    if not pulled.checkpoint and (to / run / run_folder.STARTS).exists():
        say("it has no checkpoint yet")
