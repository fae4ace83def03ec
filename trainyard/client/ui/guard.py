"""Who may ask the page's server, and what a browser may do with its answers.

Other users of the machine reach the port, and so do pages of other sites in the user's browser.
The first have no secret. The others have a wrong Host (DNS rebinding), a wrong Origin, or no token.

The key is behind the `#` of the page's address, which browsers send to nobody: the page's script
exchanges it for the token, and sends that in a header. A cookie would go to every port of the host.
"""

import secrets
from collections.abc import Callable
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
TOKEN = "x-trainyard-token"  # noqa: S105 - the name of a header
OPEN = "/api/open"  # takes the key in the same header, and answers with the token
FILES = "/static/"  # they and the page at / have no secrets, and need none
MOST_BYTES = 16 * 2**10  # of a request's content
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Middleware that answers only the browser that came with the key.

    `origin` is that of the page, such as `http://127.0.0.1:8268`.
    """

    def __init__(self, app: ASGIApp, port: int, used: Callable[[], object] = lambda: None) -> None:
        """Draws the secrets; `used` is called when the key has been used."""
        self._app = app
        self._used = used
        self._host = f"{LOOPBACK}:{port}"
        self.origin = f"http://{self._host}"
        self._token = secrets.token_urlsafe(32)
        self._key = secrets.token_urlsafe(32)

    @property
    def address(self) -> str:
        """The address that opens the page, once."""
        return f"{self.origin}/#key={self._key}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it on."""
        if scope["type"] != "http":  # the server's own start and end
            await self._app(scope, receive, send)
            return

        answer = self._answer(Request(scope)) or self._app
        await answer(scope, receive, with_headers(send))

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is not passed on."""
        headers, path = request.headers, request.scope["path"]
        changes = request.method not in {"GET", "HEAD"}
        if reason := self._foreign(headers, changes=changes):
            return _refused(reason)
        if not changes and (path == "/" or path.startswith(FILES)):
            return None
        opens = changes and path == OPEN
        if not same(headers.get(TOKEN, ""), self._key if opens else self._token):
            return _refused(
                "this page needs the address that `train ui` printed, which opens it in one "
                "browser: if it did so before and that was not you, end `train ui`, and run it "
                "again"
            )
        if opens:
            self._key = secrets.token_urlsafe(32)  # nobody has it
            self._used()
            return JSONResponse({"token": self._token})
        length = headers.get("content-length", "")
        if changes and not (length.isdecimal() and int(length) <= MOST_BYTES):
            return PlainTextResponse(f"at most {MOST_BYTES} bytes\n", 413)
        return None

    def _foreign(self, headers: Headers, *, changes: bool) -> str:
        """Return why a request is not one of the page; "" if it can be."""
        host, _, port = self._host.partition(":")
        if headers.get("host") != self._host:
            return (
                f"this page answers at {self.origin} only: open the address that `train ui` "
                f"printed. From another machine: ssh -L {port}:{host}:{port} HOST"
            )
        if changes and headers.get("origin") != self.origin:
            return "this request does not come from the page"
        return ""


def with_headers(send: Send) -> Send:
    """Return a function that sends an answer with HEADERS."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return send_with_headers


def same(given: str, known: str) -> bool:
    """Whether a secret is the known one; takes as long for each wrong one."""
    return compare_digest(given.encode(), known.encode())


def _refused(reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", 403)
