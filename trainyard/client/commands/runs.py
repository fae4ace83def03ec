"""`train runs`."""

from __future__ import annotations

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Json, Outputs, Stack, reach
from trainyard.client.console import print_table


def runs(
    context: typer.Context, as_json: Json = False, stack: Stack = None, outputs: Outputs = None
) -> None:
    """List the runs in the store, newest first, with their last metrics."""
    stack_outputs = reach(context, contract.read(stack, outputs))
    from trainyard.client import rows

    found = rows.of_runs(stack_outputs)
    columns = (*rows.RUNS, "fault") if any(row["fault"] for row in found) else rows.RUNS
    print_table(found, columns, as_json=as_json, whole=("run",), empty=rows.NO_RUNS)
