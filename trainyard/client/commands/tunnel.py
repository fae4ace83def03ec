"""`train tunnel`."""

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Outputs, Stack, until_interrupted
from trainyard.client.console import print_table, say


def tunnel(stack: Stack = None, outputs: Outputs = None) -> None:
    """Bring a stack's dashboard and other services to this machine, until Ctrl-C."""
    stack_outputs = contract.read(stack, outputs)
    if not stack_outputs.away:
        say(f"stack {stack_outputs.stack!r} answers here: `train info` has its addresses")
        return
    from trainyard.client import connection

    with (
        until_interrupted("\ntunnel closed"),
        connection.to(stack_outputs, same_ports=True) as opened,
    ):
        rows = [vars(route) for route in opened.routes]
        print_table(rows, ("service", "here", "there"), as_json=False)
        say(f"through {stack_outputs.away}; Ctrl-C ends it")
        opened.wait()
    raise typer.Exit(1)  # it has given up, and said why
