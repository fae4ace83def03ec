"""Lets in who has the cluster's token; stands before all that Ray Serve answers."""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN_FILE_VARIABLE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - a name
SERVICE_HEALTH = "/-/healthy"
PROXY_HEALTH = "/-/healthz"  # Ray's own: says "success"


class Gate:
    """Answers 401 without a token and 403 to a wrong one; health needs none."""

    def __init__(self, app: ASGIApp) -> None:
        """Reads the token, which every node of a stack has in a file.

        Args:
            app: what answers those who are let in.

        Raises:
            OSError: there is no such file.
        """
        self._app = app
        self._token = Path(os.environ[TOKEN_FILE_VARIABLE]).read_bytes().strip()
        if not self._token:
            raise OSError(f"{os.environ[TOKEN_FILE_VARIABLE]} is empty")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] == "lifespan" or _is_health(scope["path"]):
            await self._app(scope, receive, send)
            return
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            await _refuse(
                401,
                "this needs the header Authorization: Bearer TOKEN, with the token "
                "of the stack's output rayToken",
                scope,
                receive,
                send,
            )
        elif not hmac.compare_digest(given.strip().encode(), self._token):
            await _refuse(
                403, "this token is not that of the stack's output rayToken", scope, receive, send
            )
        else:
            await self._app(scope, receive, send)


def at_proxy() -> list[Middleware]:
    """What Ray's proxy is told to call when it starts: the gate, for paths of no service too."""
    return [Middleware(Gate)]


def _is_health(path: str) -> bool:
    return path == PROXY_HEALTH or path.endswith(SERVICE_HEALTH)


async def _refuse(status: int, why: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":  # closed before it is accepted: the client sees a 403
        await send({"type": "websocket.close", "code": 1008, "reason": why})
        return
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    await JSONResponse({"detail": why}, status, headers)(scope, receive, send)
