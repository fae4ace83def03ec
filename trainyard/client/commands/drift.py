"""`train drift`."""

from trainyard.client.command import Json, Stack
from trainyard.client.stack_program import name_of, options, run_here


def drift(as_json: Json = False, stack: Stack = None) -> None:
    """Report how the stack differs from its state, and change nothing; exit with 2 if it does."""
    run_here("infra.operate.drift", "-s", name_of(stack), *options(json=as_json))
