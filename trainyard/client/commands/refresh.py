"""`train refresh`."""

import typer

from trainyard.client import health
from trainyard.client import outputs as contract
from trainyard.client.command import Stack
from trainyard.client.console import warn
from trainyard.client.stack_program import LAUNCH, SALT, name_of, run


def refresh(stack: Stack = None) -> None:
    """Update the stack's state to what runs; exit with 2 if a service is not well."""
    name = name_of(stack)
    run(LAUNCH, "refresh", "-s", name)
    run(SALT, name)
    for fault in (faults := health.ask(contract.checkout(), name) or []):
        warn(f"error: {fault}")
    if faults:
        raise typer.Exit(health.ILL)
