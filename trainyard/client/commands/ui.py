"""The command `train ui`."""

import signal
import socket
import sys
import tempfile
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from trainyard.access import parallel
from trainyard.client.command import TERMINATED, Outputs, Stack
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError

PORT = 8268
# Leads a browser to the page: other users can read its arguments, and not this file.
LEADS = '<!doctype html><title>Trainyard</title><meta http-equiv="refresh" content="0;url={}">\n'


def ui(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = PORT,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address only; open it yourself.")
    ] = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Show stacks, nodes, jobs, runs, sweeps and services in your browser, until Ctrl-C."""
    from trainyard.client.ui.answers import Answers
    from trainyard.client.ui.commands import Commands
    from trainyard.client.ui.guard import Guard
    from trainyard.client.ui.server import application, run
    from trainyard.client.ui.stacks import Stacks

    listening = _listen(port)
    stacks = Stacks(stack, outputs, warn)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    with (
        closing(listening),
        closing(stacks),
        closing(Commands(stacks.file)) as commands,
        ExitStack() as opened,
    ):
        guard = Guard(
            application(Answers(stacks, commands)), listening.getsockname()[1], opened.close
        )
        say(f"open {guard.address}")
        say("it opens the page in one browser; Ctrl-C ends it")
        if not no_open:  # in a thread: a browser in this terminal returns at its end
            # Only its owner can enter the folder. It goes once the key is used.
            folder = tempfile.TemporaryDirectory(prefix="trainyard-ui-")
            file = Path(opened.enter_context(folder), "open.html")
            file.touch(0o600)
            file.write_text(LEADS.format(guard.address))
            parallel.start(_open, file.as_uri())
        with suppress(KeyboardInterrupt):
            run(guard, listening)
    say("\npage closed")


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        warn("found no browser: open the address yourself")


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    # A server that has just ended leaves connections behind, which do not matter.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise ClientError(
            f"port {port} of this machine cannot be used ({error.strerror}): another program has "
            "it, perhaps another `train ui`; give another with --port, or 0 for a free one"
        ) from None
    return listening
