"""The page as a service of a stack, for those who only look: `cluster/page.py` declares it.

It asks for a password of its own, in each place. The gateway's would not do: other users of a
machine reach the port on its loopback without the gateway, and its password opens Prometheus too.
A site whose name leads here (DNS rebinding) gets nothing, since a browser sends a password only to
the address that it was typed for. Other sites can make a browser ask, but not read the answers
(HEADERS), and no question changes anything: there are no commands here.
"""

import argparse
import base64
import socket
import sys
from contextlib import closing
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from trainyard.access.terminal import clean_lines
from trainyard.client.console import warn
from trainyard.client.errors import ClientError
from trainyard.client.ui.answers import Answers
from trainyard.client.ui.commands import Commands
from trainyard.client.ui.guard import same, with_headers
from trainyard.client.ui.server import application, run
from trainyard.client.ui.stacks import Stacks

HEALTH = "/health"  # answers without the password
ASK = {"WWW-Authenticate": 'Basic realm="Trainyard", charset="UTF-8"'}


class Password:
    """Middleware that answers only who knows the password."""

    def __init__(self, app: ASGIApp, user: str, password: str) -> None:
        """Asks nobody yet."""
        self._app = app
        self._known = base64.b64encode(f"{user}:{password}".encode()).decode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it on."""
        answer = self._app
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scope["path"] == HEALTH:
            answer = PlainTextResponse("up\n")
        elif scheme.lower() != "basic" or not same(given, self._known):
            answer = PlainTextResponse("this page needs its password: see `train info`\n", 401, ASK)
        await answer(scope, receive, with_headers(send))


def main(arguments: list[str] | None = None) -> None:
    """Serve the page of the stack that TRAINYARD_OUTPUTS names, until SIGTERM."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("--host", required=True, help="address to listen on")
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password-file", required=True, type=Path)
    given = parser.parse_args(arguments)
    try:
        password = _password(given.password_file)
        stacks = Stacks(None, None, warn)
    except ClientError as error:
        sys.exit(clean_lines(f"error: {error}"))
    with (
        closing(socket.create_server((given.host, given.port))) as listening,
        closing(stacks),
        closing(Commands(stacks.file)) as commands,
    ):
        shown = application(Answers(stacks, commands, read_only=True))
        run(Password(shown, given.user, password), listening)


def _password(path: Path) -> str:
    try:
        found = path.read_text().strip()
    except OSError as error:
        raise ClientError(f"no password in {path} ({error.strerror}): run `make up`") from None
    if not found:
        raise ClientError(f"the password in {path} is empty: run `make up`")
    return found


if __name__ == "__main__":
    main()
