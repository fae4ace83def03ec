"""`train logs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard.access import typed
from trainyard.client.command import (
    JobName,
    Outputs,
    Stack,
    Verbose,
    follow_job,
    reach_jobs,
    until_interrupted,
    warn_of_end,
)
from trainyard.client.errors import ClientError, writing


def logs(
    context: typer.Context,
    job: JobName,
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Follow a job, exit with its result; or a service."),
    ] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Only so many lines, the last.")] = None,
    grep: Annotated[str, typer.Option(help="Only lines with this text.")] = "",
    since: Annotated[
        str, typer.Option(help="Only lines of the last 10m, 2h or 7d, or from 2026-11-29T10:15 on.")
    ] = "",
    worker: Annotated[
        int | None, typer.Option(min=0, help="Only lines of the training's worker of this rank.")
    ] = None,
    download: Annotated[
        Path | None, typer.Option(help="Write all lines into this file, or folder.")
    ] = None,
    verbose: Verbose = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Print a job's log; that of a run also when its cluster is gone.

    The name of a service of `train serve` also prints what its replicas print.

    Lines have no time of their own: --since reads the times that the job's recorder has noted, to
    about a second. It shows some lines before the time rather than too few.
    """
    from trainyard import serving
    from trainyard.client import api, jobs
    from trainyard.client.log_writer import Choice, LogWriter
    from trainyard.client.selection import began

    begun = began(since) / 1000 if since else 0.0
    choice = Choice(grep, worker, tail)
    if worker is not None or (follow and tail is not None):
        choice.look(api.log_pieces(job, stack, outputs))
    writer = LogWriter(verbose=verbose, choice=choice)
    if download:
        file = download / f"{job}.log" if download.is_dir() else download
        with writing(file, "name another file"):
            out = context.with_resource(file.open("w", encoding="utf-8"))
        writer = LogWriter(out, verbose=True, choice=choice)
    if follow:
        from trainyard.client import job_log

        server, stack_outputs = reach_jobs(context, stack, outputs)
        warn_of_end(stack_outputs)
        known = jobs.submissions(server)
        if job not in (runs := {each.run for each in known}) and serving.run_of(job) in runs:
            job = serving.run_of(job)
        with until_interrupted(f"\n{job} goes on"):
            if job_log.follow_service(job, stack_outputs, begun, writer):
                return
        found = jobs.pick(known, job)
        choice.skip = jobs.lines_before(found, stack_outputs, begun)
        follow_job(server, found.submission_id, stack_outputs, writer)
        return
    for piece in api.log_pieces(job, stack, outputs, begun):
        writer.write(piece)
    writer.close()
    if worker is not None and not choice.ranks.pop(worker):
        raise ClientError(
            f"the log of {job} names no worker of rank {worker}; it names "
            f"{', '.join(map(str, sorted(choice.ranks))) or 'none, as only trainings have ranks'}: "
            f"`train logs {typed.argument(job)}` prints all"
        )
