"""`train list`."""

import sys
from typing import Annotated

import typer

from trainyard.client.command import Json, Outputs, Stack, reach, reach_jobs
from trainyard.client.console import print_table
from trainyard.client.selection import Limit, Mine, OfStatus, Selection, Since, User


def list(  # noqa: A001 - it has the command's name
    context: typer.Context,
    limit: Limit = None,
    status: OfStatus = "",
    user: User = "",
    mine: Mine = False,
    since: Since = "",
    wide: Annotated[bool, typer.Option("--wide", help="Show ids beside the runs' names.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also each run's last job that the cluster has forgotten.")
    ] = False,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """List the cluster's jobs, newest first, and why they wait.

    With --all also when the cluster is new, away or down.
    """
    from trainyard.client import jobs, left_results, recorded, rows, store

    if everything:
        stack_outputs = reach(context, left_results.read(stack, outputs))
        listed = recorded.listed(stack_outputs)
        more = recorded.unlisted(store.open_store(stack_outputs), listed)
    else:
        server, stack_outputs = reach_jobs(context, stack, outputs)
        listed, more = server.jobs(), []
    newest_first = jobs.newest_first([*(listed or ()), *more])
    chosen = Selection(status, user, mine, since, limit).of(
        ((job, str(job.status), job.user, job.start_time) for job in newest_first),
        stack_outputs.user,
    )
    found = rows.of_jobs(listed or (), stack_outputs, chosen)
    columns: tuple[str, ...] = rows.JOBS
    if sys.stdout.isatty() and not wide and not as_json:  # commands take a run's name as well
        found = [row | {"job": row["run"] or row["job"]} for row in found]
        columns = tuple(name for name in columns if name != "run")
    print_table(
        found,
        columns,
        as_json=as_json,
        whole=("job", "run"),
        below="waits",
        empty=rows.NO_JOBS,
    )
