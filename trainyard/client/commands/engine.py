"""`train config`, `output`, `stack`, `secrets` and `cancel`: the engine's commands of these names.

The engine knows their options. It gets all from the first word on as typed: click would take away a
`--`, after which a value such as `-x` is not an option.
"""

from __future__ import annotations

import typer

from trainyard.client.command import Stack
from trainyard.client.errors import ClientError
from trainyard.client.stack_program import name_of, run_here

SETTINGS = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,
}


def config(context: typer.Context, stack: Stack = None) -> None:
    """Read or change the settings of a stack, in Pulumi.<stack>.yaml: set, get, rm or ls."""
    if not context.args:
        raise ClientError("`train config` needs an action: set, get, rm or ls")
    action, *rest = context.args  # each has the option
    run_here("engine", "config", action, "-s", name_of(stack), *rest)


def output(context: typer.Context, stack: Stack = None) -> None:
    """Print the outputs of a stack, such as addresses and, with --show-secrets, passwords."""
    _run(context, stack)


def stack(context: typer.Context, stack: Stack = None) -> None:
    """List the stacks that have a state, remove one, or show its history: ls, rm or history."""
    _run(context, stack)


def secrets(context: typer.Context, stack: Stack = None) -> None:
    """Encrypt the settings and the state of a stack with a new key: rotate."""
    _run(context, stack)


def cancel(context: typer.Context, stack: Stack = None) -> None:
    """Remove the lock that a dead process left on a stack."""
    _run(context, stack)


def _run(context: typer.Context, stack: str | None) -> None:
    run_here("engine", str(context.info_name), "-s", name_of(stack), *context.args)
