"""`train stop`."""

from __future__ import annotations

import typer

from trainyard.client.command import JobName, Outputs, Stack, reach_jobs
from trainyard.client.console import say


def stop(
    context: typer.Context, job: JobName, stack: Stack = None, outputs: Outputs = None
) -> None:
    """Stop a job and wait until it has stopped; its checkpoints stay."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import jobs

    found = jobs.resolve(server, job)
    job_id = found.submission_id
    if found.status.ended:
        say(f"job {job_id} has ended already: {found.status}")
        return
    server.stop(job_id)
    if found.status == "UNREADABLE":
        say(f"asked job {job_id} to stop; {found.message}")
        return
    if found.status == "PENDING":
        timeout = stack_outputs.job_start_timeout
        fails = (
            f", and fails it after {timeout.total_seconds():g} s in the queue" if timeout else ""
        )
        say(f"job {job_id} is queued: Ray stops it when it is about to start{fails}")
        return
    ended = jobs.wait_for_end(server, job_id)
    say(f"job {job_id}: {ended.status}")
