"""The command `train pull`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Outputs, RunName, Stack, reach, until_interrupted
from trainyard.client.console import say

if TYPE_CHECKING:
    from trainyard.client.pull.transfer import Pulled, Transfer

RESULTS = Path("results")


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
    from trainyard.client import history, store
    from trainyard.client.pull.transfer import Transfer

    history.valid_name(run)
    stack_outputs = reach(context, contract.read(stack, outputs))
    place = store.open_store(stack_outputs)
    transfer = Transfer(place, run, to / run)
    is_ours = to == RESULTS and not to.exists()
    stopped = f"\nstopped: complete files are in {to / run}, and the same command goes on"
    try:
        with until_interrupted(stopped):
            if follow:
                _follow(run, transfer, to, stack_outputs)
                return
            pulled = transfer.run()
    finally:
        if is_ours and to.exists():
            with suppress(OSError):  # the disk is full, which was told
                (to / ".gitignore").write_text("*\n")  # uploads of jobs leave it out too
    if pulled is None:
        raise history.no_run(place, run)
    _tell(run, pulled, to)


def _follow(run: str, transfer: Transfer, to: Path, outputs: contract.StackOutputs) -> None:
    from trainyard.client import jobs
    from trainyard.client.pull import follow

    server = jobs.connect(outputs)
    say(f"pulling run {run} while its job runs; Ctrl-C stops the pull only")
    ended = follow.follow(
        server, run, transfer, lambda new: _tell(run, new, to), jobs.patience(outputs)
    )
    say(f"its job has ended: {ended}" if ended else "it has no running job")


def _tell(run: str, pulled: Pulled, to: Path) -> None:
    """Prints one line about the result of a pass."""
    parts = []
    if pulled.transfer:
        parts.append(f"{pulled.checkpoint} ({pulled.transfer})")
    if pulled.records:
        parts.append(f"{pulled.records} files of records")
    brought = " and ".join(parts) or "nothing new"
    say(f"run {run}: {brought} in {to / run}")
    if not pulled.checkpoint:
        say("it has no checkpoint yet")
