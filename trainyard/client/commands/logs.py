"""`train logs`."""

from __future__ import annotations

from typing import Annotated

import typer

from trainyard.client.command import (
    JobName,
    Outputs,
    Stack,
    follow_job,
    reach_jobs,
    warn_of_end,
)


def logs(
    context: typer.Context,
    job: JobName,
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Follow the job to its end; exit with its result."),
    ] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Print a job's log from its beginning."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import jobs
    from trainyard.client.log_writer import LogWriter

    job_id = jobs.resolve(server, job).submission_id
    warn_of_end(stack_outputs)
    if follow:
        follow_job(server, job_id, stack_outputs)
    else:
        writer = LogWriter()
        writer.write(jobs.read_log(server, job_id))
        writer.close()
