"""`train list`."""

from __future__ import annotations

import typer

from trainyard.client.command import Json, Outputs, Stack, reach_jobs
from trainyard.client.console import print_table


def list(  # noqa: A001 - it has the command's name
    context: typer.Context, as_json: Json = False, stack: Stack = None, outputs: Outputs = None
) -> None:
    """List the cluster's jobs, newest first, and why they wait."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import rows

    found = rows.of_jobs(server, stack_outputs)
    print_table(
        found,
        rows.JOBS,
        as_json=as_json,
        whole=("job", "run"),
        below="waits",
        empty=rows.NO_JOBS,
    )
