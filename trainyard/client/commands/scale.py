"""`train scale`."""

from typing import Annotated

import typer

from trainyard.client.command import Stack
from trainyard.client.stack_program import name_of, options, run_here


def scale(
    once: Annotated[bool, typer.Option("--once", help="Run `up` at most once.")] = False,
    stack: Stack = None,
) -> None:
    """Launch and end the rented machines of a group as Ray requests, until Ctrl-C."""
    run_here("infra.operate.scale", "-s", name_of(stack), *options(once=once))
