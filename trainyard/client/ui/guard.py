"""Who may ask the page's server, and what a browser may do with its answers.

Other users of the machine reach the port, and so do pages of other sites in the user's browser.
The first have no secret. The others have a wrong Host (DNS rebinding), a wrong Origin, or no token.
"""

from __future__ import annotations

import secrets
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
TOKEN = "x-trainyard-token"  # noqa: S105 - the name of a header
KEY = "key"  # of the query of the address that opens the page
MOST_BYTES = 16 * 2**10  # of a request's content
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
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
# Not a redirect: the browser would send it without the new cookie, since another program began it.
OPENED = (
    '<!doctype html><title>Trainyard</title><link rel="icon" href="/static/icon.svg">'
    '<meta http-equiv="refresh" content="0;url=/">'
)


class Guard:
    """Middleware that answers only the browser that came with the key.

    Attributes:
        origin: of the page, such as `http://127.0.0.1:8268`.
        token: that each POST sends in a header; pages of other sites cannot read it.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        """Draws the secrets.

        Args:
            app: answers requests that pass.
            port: of the server.
        """
        self._app = app
        self._host = f"{LOOPBACK}:{port}"
        self.origin = f"http://{self._host}"
        self.token = secrets.token_urlsafe(32)
        self._key = secrets.token_urlsafe(32)
        self._cookie = f"trainyard-{port}"  # browsers send cookies to all ports of a host
        self._session = secrets.token_urlsafe(32)
        self._opened = False

    @property
    def address(self) -> str:
        """The address that opens the page, once."""
        return f"{self.origin}/?{KEY}={self._key}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it on."""
        if scope["type"] != "http":  # the server's own start and end
            await self._app(scope, receive, send)
            return

        answer = self._answer(Request(scope)) or self._app
        await answer(scope, receive, with_headers(send))

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is not passed on."""
        headers = request.headers
        if headers.get("host") != self._host:
            return _refused("this server answers at its own address only")
        if key := request.query_params.get(KEY):
            return self._open(key)
        if not same(request.cookies.get(self._cookie, ""), self._session):
            return _refused(
                "this address needs the key that `train ui` printed, which opens the page once: "
                "run `train ui` again"
            )
        if request.method not in {"GET", "HEAD"}:
            return self._refusal(headers)
        return None

    def _refusal(self, headers: Headers) -> Response | None:
        """Return why a request that changes something is refused."""
        if headers.get("origin") != self.origin:
            return _refused("this request does not come from the page")
        if not same(headers.get(TOKEN, ""), self.token):
            return _refused("this request lacks the page's token: load the page again")
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return PlainTextResponse(f"at most {MOST_BYTES} bytes", 413)
        return None

    def _open(self, key: str) -> Response:
        if self._opened or not same(key, self._key):
            return _refused(
                "this key is wrong or was used: it opens the page once. If that was not you, end "
                "`train ui`, and run it again"
            )
        self._opened = True
        response = Response(OPENED, media_type="text/html")
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
        return response


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
