"""`train dashboard`."""

import webbrowser
from typing import Annotated

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Outputs, Stack
from trainyard.client.console import say, warn


def dashboard(
    print_only: Annotated[
        bool,
        typer.Option("--print", help="Print the address and the token only."),
    ] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Open Ray's dashboard in your browser, and print the token that it asks for."""
    stack_outputs = contract.read(stack, outputs)
    say(f"address  {stack_outputs.dashboard_url}")
    # The dashboard asks for it; it must not be in the address, which browsers keep.
    if stack_outputs.ray_token:
        say(f"token    {stack_outputs.ray_token}")
    if stack_outputs.away:
        say(f"the address is on {stack_outputs.away}: `train tunnel`")
    elif not print_only and not webbrowser.open(stack_outputs.dashboard_url):
        warn("found no browser: open the address yourself")
