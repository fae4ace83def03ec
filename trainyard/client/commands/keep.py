"""`train keep`."""

from typing import Annotated

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Outputs, Stack, reach
from trainyard.client.console import say


def keep(
    context: typer.Context,
    time: Annotated[str, typer.Argument(help="Time from now, such as 2h or 90m.")],
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Keep a stack with idleEnd for a time although it is idle, at most until its end."""
    from trainyard.client import idle as idle_end
    from trainyard.client import selection

    seconds = selection.seconds(time)
    stack_outputs = contract.read(stack, outputs)
    if idle_end.watch(stack_outputs):
        stack_outputs = reach(context, stack_outputs)
    say(f"ends when idle: {idle_end.keep(stack_outputs, seconds)}")
