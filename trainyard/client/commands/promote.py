"""`train promote`."""

from typing import Annotated

import typer

from trainyard.access.terminal import clean
from trainyard.client import completion
from trainyard.client.command import Outputs, Stack, reach
from trainyard.client.console import say


def promote(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Name of a run.", autocompletion=completion.runs)],
    alias: Annotated[str, typer.Option("--as", metavar="ALIAS", help="Its alias in MLflow.")],
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Give the model of a run an alias in MLflow, such as champion."""
    from trainyard.client import outputs as contract
    from trainyard.client import registry

    stack_outputs = reach(context, contract.read(stack, outputs))
    name, version = registry.promote(run, alias, stack_outputs)
    say(f"version {version} of model {clean(name)} is {clean(alias)}")
    say(f"serve it: train serve {registry.SCHEME}{clean(name)}@{clean(alias)}")
