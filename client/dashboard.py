"""The dashboard of a stack's head over HTTP: JSON in, JSON out.

Ray's own client of the same addresses imports all of Ray, a second of processor time. No proxy is
asked for the way: the addresses are this machine's or the stack's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import urllib3

from client.outputs import StackOutputs

CONNECTIONS = 4  # a request that was given up may still hold one
TIMEOUT_S = 30  # to connect, and between two pieces of the reply


class DashboardError(Exception):
    """A request was in vain; the text is the kind of fault."""


class UnreachableError(DashboardError):
    """There is no answer."""


class UnreadableError(DashboardError):
    """The answer is not what the dashboard of a head says."""


class RefusedError(DashboardError):
    """The answer has another status than 200.

    Attributes:
        status: of HTTP.
        text: what the server says.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.text = text


class Dashboard:
    """Asks a stack's head; every method may raise a DashboardError."""

    def __init__(self, outputs: StackOutputs) -> None:
        self.url = outputs.dashboard_url
        self.headers = {"Authorization": f"Bearer {outputs.ray_token}"}
        self._pool = urllib3.PoolManager(maxsize=CONNECTIONS, headers=self.headers, retries=False)

    def get(self, path: str, timeout_s: float = TIMEOUT_S, **query: object) -> Any:
        """Gets a path; the names and values of a query come behind it."""
        return self._ask("GET", path, timeout_s, query)

    def post(self, path: str) -> Any:
        """Posts nothing to a path."""
        return self._ask("POST", path, TIMEOUT_S, {})

    def put(self, path: str, content: bytes) -> None:
        """Puts bytes to a path; what it answers is not JSON."""
        try:
            reply = self._pool.request("PUT", f"{self.url}{path}", body=content, timeout=TIMEOUT_S)
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(type(error).__name__) from None
        if reply.status != 200:
            raise RefusedError(reply.status, reply.data.decode(errors="replace"))

    def stream(self, path: str, timeout_s: float | None = None, **query: object) -> Iterator[bytes]:
        """The pieces of what a path answers, as they come, until it ends or is cut.

        Args:
            path: with a `/`.
            timeout_s: between two pieces; None for no bound.
            query: names and values behind the path.
        """
        try:
            reply = self._pool.request(
                "GET",
                f"{self.url}{path}?{urlencode(query)}",
                timeout=urllib3.Timeout(connect=TIMEOUT_S, read=timeout_s),
                preload_content=False,
            )
            if reply.status != 200:
                raise RefusedError(reply.status, reply.data.decode(errors="replace"))
            yield from reply.read_chunked()
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(type(error).__name__) from None

    def _ask(self, method: str, path: str, timeout_s: float, query: dict[str, object]) -> Any:
        try:
            reply = self._pool.request(
                method,
                f"{self.url}{path}" + (f"?{urlencode(query)}" if query else ""),
                timeout=urllib3.Timeout(timeout_s),
            )
            text = reply.data.decode(errors="replace")
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(type(error).__name__) from None
        if reply.status != 200:
            raise RefusedError(reply.status, text)
        try:
            return reply.json()
        except ValueError as error:
            raise UnreadableError(type(error).__name__) from None
