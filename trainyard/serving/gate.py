"""Admits requests with the serve token; protects everything that Ray Serve answers.

The serve token opens only models. The cluster's own token, which grants the right to run code, does
not open them: nobody should need it to query a model.
"""

from __future__ import annotations

import hmac
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse

from trainyard.serving import TOKEN_FILE_VARIABLE
from trainyard.tracking.run_folder import NAME_PATTERN

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

OUTPUT = "serveToken"
SERVICE_HEALTH = "/-/healthy"
# Whole paths: a service's own, and Ray's proxy's, which answers "success".
HEALTH = re.compile(rf"/(?:{NAME_PATTERN.pattern}{re.escape(SERVICE_HEALTH)}|-/healthz)")
PAGE = re.compile(rf"/{NAME_PATTERN.pattern}/?")
FORM = HTMLResponse(Path(__file__).with_name("try.html").read_bytes())
FORM.headers["X-Frame-Options"] = "DENY"
READS = ("GET", "HEAD")


class Gate:
    """Answers 401 without a token and 403 to a wrong one; health checks need none.

    A browser gets a page that asks for the token, the same for each name: no application is asked.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Reads the token, which every node of a stack has in a file.

        Raises:
            OSError: the file is missing or empty.
        """
        self._app = app
        self._token = Path(os.environ[TOKEN_FILE_VARIABLE]).read_bytes().strip()
        if not self._token:
            raise OSError(f"{os.environ[TOKEN_FILE_VARIABLE]} is empty")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] == "lifespan" or _is_health(scope):
            await self._app(scope, receive, send)
            return
        if _is_browser(scope):
            await FORM(scope, receive, send)
            return
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            await _refuse(
                401,
                "this needs the header Authorization: Bearer TOKEN, with the token "
                f"of the stack's output {OUTPUT}",
                scope,
                receive,
                send,
            )
        elif not hmac.compare_digest(given.strip().encode(), self._token):
            await _refuse(
                403, f"this token is not the stack's output {OUTPUT}", scope, receive, send
            )
        else:
            await self._app(scope, receive, send)


def at_proxy() -> list[Middleware]:
    """Return the gate; Ray's proxy calls this when it starts, to cover paths of no service too."""
    return [Middleware(Gate)]


def _is_health(scope: Scope) -> bool:
    """Whether a request only asks for health, by a GET or HEAD of one of these whole paths."""
    if scope["type"] != "http" or scope["method"] not in READS:
        return False
    return HEALTH.fullmatch(scope["path"]) is not None


def _is_browser(scope: Scope) -> bool:
    """Whether a browser without a token reads the address of a service."""
    if scope["type"] != "http" or scope["method"] not in READS or not PAGE.fullmatch(scope["path"]):
        return False
    headers = Headers(scope=scope)
    return "text/html" in headers.get("accept", "") and "authorization" not in headers


async def _refuse(status: int, why: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":  # closed before it is accepted: the client sees a 403
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    await JSONResponse({"detail": why}, status, headers)(scope, receive, send)
