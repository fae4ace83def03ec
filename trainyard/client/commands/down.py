"""`train down`."""

from typing import Annotated

import typer

from trainyard.client.command import Stack
from trainyard.client.stack_program import LAUNCH, SALT, name_of, run


def down(
    yes: Annotated[
        bool, typer.Option("--yes", help="End runs that were not pulled without a question.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="End running jobs too, without a question.")
    ] = False,
    stack: Stack = None,
) -> None:
    """End a stack: show its jobs, users, runs and costs, ask if something is lost, then end it.

    Results stay, except on rented machines.
    """
    name = name_of(stack)
    from trainyard.client import losses

    losses.agree_to_the_end(name, yes=yes, force=force)
    run(LAUNCH, "destroy", "-s", name)
    run(SALT, name)
