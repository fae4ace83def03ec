"""`train rotate`."""

from typing import Annotated

import typer

from trainyard.client import stack_program as program
from trainyard.client.command import Stack


def rotate(
    secret: Annotated[
        str | None,
        typer.Argument(help="Name of the secret that gets a new value (default: list them all)."),
    ] = None,
    policy_pack: program.Pack = None,
    policy_pack_config: program.Levels = None,
    force: program.NewHead = False,
    yes: program.Unasked = False,
    stack: Stack = None,
) -> None:
    """List a stack's secrets, or give one a new value and bring the stack up with it."""
    name = program.name_of(stack)
    if secret is None:
        program.run_here("infra.operate.rotate", "-s", name)
        return
    asked = program.options(force=force, yes=force and yes)
    program.run_here("infra.operate.rotate", "-s", name, f"--secret={secret}", *asked)
    rules = program.options(policy_pack=policy_pack, policy_pack_config=policy_pack_config)
    program.run(program.LAUNCH, "up", "-s", name, *rules, variables=program.FORCE if force else {})
