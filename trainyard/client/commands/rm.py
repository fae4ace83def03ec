"""`train rm`."""

import sys
from typing import Annotated

import typer

from trainyard.access import typed
from trainyard.access.terminal import agree
from trainyard.client import completion
from trainyard.client.command import Outputs, Stack, reach
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError


def rm(
    context: typer.Context,
    runs: Annotated[
        list[str], typer.Argument(help="Names of runs.", autocompletion=completion.runs)
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Delete runs from the store: their records, checkpoints, logs and files."""
    from trainyard.client import history, left_results, recorded, store
    from trainyard.tracking import run_folder

    stack_outputs = reach(context, left_results.read(stack, outputs))
    listed, place = recorded.listed(stack_outputs), store.open_store(stack_outputs)
    if listed is None:
        raise ClientError("nothing was deleted: no cluster tells whether a job of a run goes on")
    going_on = {job.run: job.submission_id for job in listed if not job.status.ended}
    names = dict.fromkeys(runs)
    for name in names:
        run = history.read_run(place, name)
        if name in going_on:
            raise ClientError(
                f"nothing was deleted: job {going_on[name]} of run {name!r} goes on; stop it with "
                f"`train stop {typed.argument(name)}`"
            )
        if any(map(run_folder.is_open_notebook, run.jobs[-1:])):
            raise ClientError(
                f"nothing was deleted: the notebook of run {name!r} goes on; run "
                "trainyard.finish() in it, or shut its kernel down"
            )
        files = place.listed(name).values()
        user = f" of {run.user}" if run.user else ""
        warn(f"run {name}{user}: {len(files)} files, {sum(f.size for f in files) / 2**20:.1f} MiB")
    if not yes and not sys.stdin.isatty():
        raise ClientError("nothing was deleted: nobody can be asked; add --yes")
    if not yes and not agree("Delete this for good?"):
        raise ClientError("nothing was deleted")
    for name in names:
        recorded.delete(place, name)
        say(f"deleted run {name}")
