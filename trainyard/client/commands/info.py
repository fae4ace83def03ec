"""`train info`."""

import typer

from trainyard import json_values
from trainyard.client import info as info_rows
from trainyard.client import outputs as contract
from trainyard.client.command import Json, Outputs, Stack, reach
from trainyard.client.console import print_facts, say, warn
from trainyard.client.errors import ClientError


def info(
    context: typer.Context, as_json: Json = False, stack: Stack = None, outputs: Outputs = None
) -> None:
    """Show the stack's addresses and the next commands; exit with 1 if a service is not well."""
    from trainyard.access import parallel
    from trainyard.client import costs, disks, health
    from trainyard.client import idle as idle_end

    stack_outputs = contract.read(stack, outputs)
    if as_json:
        say(json_values.text(info_rows.facts(stack_outputs)))
        return
    asked = parallel.start(health.of, stack_outputs)  # next to the other questions
    idle = cost = ""
    if stack_outputs.attached:
        stack_outputs = reach(context, stack_outputs)
    try:
        reached = stack_outputs if stack_outputs.attached else reach(context, stack_outputs)
        told = parallel.start(costs.month, reached)
        disk = disks.row(reached)
        if idle_end.watch(stack_outputs):
            idle = idle_end.summary(reached)
        cost = told.result()
    except ClientError as error:  # it may have ended
        disk = idle = f"not known: {error}"
    for title, rows in (
        ("", info_rows.addresses(stack_outputs, disk, idle, cost)),
        ("next:", info_rows.next_steps(stack_outputs)),
    ):
        print_facts(title, rows)
    for fault in (faults := asked.result() or []):
        warn(f"error: {fault}")
    if faults:
        raise typer.Exit(1)
