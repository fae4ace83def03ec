"""Shared by the commands: options, the connection to the stack, following a job to its end."""

# ruff: noqa: PLC0415 - a command imports what it needs, since most of it is slow

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainyard.access import typed
from trainyard.client import completion, info
from trainyard.client import outputs as contract
from trainyard.client.console import duration, say, warn

if TYPE_CHECKING:
    from trainyard.client import waiting
    from trainyard.client.job_server import Job, JobServer
    from trainyard.client.log_writer import LogWriter

# What shells report after Ctrl-C, and after SIGTERM.
INTERRUPTED, TERMINATED = 130, 143

Stack = Annotated[
    str | None,
    typer.Option(
        "-s",
        "--stack",
        help="Name of the stack or attached cluster (default: TRAINYARD_STACK, else dev).",
        autocompletion=completion.stacks,
    ),
]
Outputs = Annotated[
    Path | None,
    typer.Option(
        "--outputs", help="File with the stack's outputs as JSON (default: TRAINYARD_OUTPUTS)."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Print Ray's own lines too, and paths of the nodes.")
]
JobName = Annotated[
    str,
    typer.Argument(
        help="Submission id, or the name of a run: its newest job.", autocompletion=completion.jobs
    ),
]
RunName = Annotated[str, typer.Argument(help="Name of a run.", autocompletion=completion.runs)]
Script = Annotated[
    str,
    typer.Argument(help="Name of a job, or path of a .py file.", autocompletion=completion.scripts),
]

JobArguments = Annotated[list[str] | None, typer.Argument(help="Arguments of the job, after `--`.")]
WorkingDir = Annotated[
    str | None, typer.Option(help="Folder to upload (default: the folder of the .py file).")
]


@contextmanager
def until_interrupted(said: str) -> Iterator[None]:
    """At Ctrl-C say a sentence, and end the command."""
    try:
        yield
    except KeyboardInterrupt:
        say(said)
        raise typer.Exit(INTERRUPTED) from None


def reach(context: typer.Context, outputs: contract.StackOutputs) -> contract.StackOutputs:
    """The outputs with addresses that answer here until the command's end."""
    from trainyard.client import connection

    return context.with_resource(connection.to(outputs)).outputs


def reach_jobs(
    context: typer.Context, stack: str | None, file: Path | None
) -> tuple[JobServer, contract.StackOutputs]:
    """The stack's job server, and the outputs with addresses that answer here."""
    stack_outputs = reach(context, contract.read(stack, file))
    from trainyard.client import jobs

    return jobs.connect(stack_outputs), stack_outputs


def warn_of_end(outputs: contract.StackOutputs) -> None:
    """Say when the stack ends itself, if that is soon."""
    if ending := info.ends_soon(outputs):
        warn(f"warning: {ending}")


def follow_job(
    server: JobServer, job_id: str, outputs: contract.StackOutputs, log: LogWriter | None = None
) -> None:
    """Writes a job's log until its end; a job that fails, or Ctrl-C, ends the command too."""
    from trainyard.client import failure, job_log, jobs
    from trainyard.client.log_writer import LogWriter

    writer = log or LogWriter()

    def notice(job: Job) -> None:
        wait = why_it_waits(server, job, outputs)
        first_line = job.message.strip().partition("\n")[0]
        say(f"job {job_id} is {job.status}: {wait.reason if wait else first_line}")

    warned = bool(info.ends_soon(outputs))  # when the command began

    def write(text: str) -> None:
        nonlocal warned
        writer.write(text)
        if not warned and info.ends_soon(outputs):
            warned = True
            warn_of_end(outputs)

    try:
        job = job_log.follow(server, job_id, write, notice, jobs.patience(outputs))
    except KeyboardInterrupt:
        writer.close()
        say(f"\ndetached; job {job_id} keeps running")
        name = typed.argument(job_id)
        say(f"follow it again: `train logs -f {name}`; stop it: `train stop {name}`")
        raise typer.Exit(INTERRUPTED) from None
    writer.close()
    ending = {"SUCCEEDED": "succeeded", "FAILED": "failed", "STOPPED": "was stopped"}[job.status]
    say(f"Job '{job_id}' {ending}", rule=True)
    if job.status == "FAILED":
        warn(f"error: {failure.of(job, shown=True)}")
    if job.run and outputs.shows_runs:
        run = typed.argument(job.run)
        goes_on = f"submit it again with --name {run}, and it goes on in this run"
        shown = f"`train show {run}` has its figures, `train pull {run}` brings its files"
        then = shown if job.status == "SUCCEEDED" else goes_on
        say(f"it took {duration(job.seconds)}; next: {then}")
    if job.status != "SUCCEEDED":
        raise typer.Exit(1)


def why_it_waits(
    server: JobServer, job: Job, outputs: contract.StackOutputs
) -> waiting.Wait | None:
    """Return why a job or its request is not placed; None when nothing waits."""
    from trainyard.client import waiting
    from trainyard.client.state import ClusterState

    return waiting.Reasons(server.jobs(), outputs, ClusterState(outputs)).of(job)
