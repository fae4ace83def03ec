"""`train queue`."""

import sys

import typer

from trainyard.client.command import Json, Outputs, Stack, reach_jobs
from trainyard.client.console import print_table

COLUMNS = ("place", "job", "user", "needs", "priority", "since", "begins", "attempt", "reason")


def queue(
    context: typer.Context,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """List which jobs run and which wait, in the order of the stack's queue."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import rows

    found = rows.of_queue(server, stack_outputs)
    if sys.stdout.isatty() and not as_json:  # commands take a run's name as well
        found = [row | {"job": row["run"] or row["job"]} for row in found]
    print_table(
        found,
        COLUMNS,
        as_json=as_json,
        whole=("place", "job"),
        below="reason",
        empty="no job waits or runs: `train submit` sends one",
    )
