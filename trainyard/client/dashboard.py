"""The dashboard of a stack's head over HTTP, and other servers: JSON in, JSON out.

Ray's own client of the same addresses needs all of Ray: 200 MB, and a second of processor time. No
proxy is used: the addresses are this machine's or the stack's own.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import urllib3

from trainyard.access import bounded
from trainyard.access.bounded import MOST_MIB
from trainyard.client.outputs import StackOutputs
from trainyard.store.request_body import RequestBody

CONNECTIONS = 4  # a request that was given up may still hold one
CONNECT_S = 5  # for requests with answers in JSON: the kernel of a busy head accepts
TIMEOUT_S = 30  # else to connect; for each piece that is sent, and between two of the reply
STREAM_PIECE = 2**18  # bytes of a stream's piece, at most
UPLOADED_S = 300  # for the reply to an upload: buffers and tunnels hold megabytes of it until then


class DashboardError(Exception):
    """A request failed; the text is the kind of fault."""


class UnreachableError(DashboardError):
    """The dashboard does not answer."""


class UnreadableError(DashboardError):
    """The answer is not one of a head's dashboard."""


class TooLongError(UnreadableError):
    """The answer is longer than its bound."""


class RefusedError(DashboardError):
    """The answer's status is not 200; `text` is the server's answer."""

    def __init__(self, status: int, text: str) -> None:
        why = f": {text[:500]}" if status == HTTPStatus.FORBIDDEN else ""
        super().__init__(f"status {status}{why}")
        self.status = status
        self.text = text


class JsonServer:
    """Asks a server once each time; every method may raise a DashboardError."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = url.rstrip("/")
        self.headers = dict(headers)
        self._pool = urllib3.PoolManager(maxsize=CONNECTIONS, headers=self.headers, retries=False)

    def get(
        self, path: str, timeout_s: float = TIMEOUT_S, most_mib: int = MOST_MIB, **query: object
    ) -> Any:
        """Gets a path with the names and values of a query."""
        return self._json(
            "GET", f"{path}?{urlencode(query)}" if query else path, timeout_s, most_mib
        )

    def post(self, path: str, content: object = None, timeout_s: float = TIMEOUT_S) -> Any:
        """Posts JSON to a path; None for no content."""
        sent: dict[str, Any] = {} if content is None else {"json": content}
        return self._json("POST", path, timeout_s, **sent)

    def has(self, path: str) -> bool:
        """Whether a path is known."""
        try:
            self._ask("GET", path, urllib3.Timeout(TIMEOUT_S))
        except RefusedError as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def delete(self, path: str) -> None:
        """Deletes what a path names."""
        self._ask("DELETE", path, urllib3.Timeout(TIMEOUT_S))

    def put(self, path: str, content: bytes, sent: Callable[[int], None] | None = None) -> None:
        """Puts bytes to a path, which begins with a `/`; the answer is not JSON.

        It may take any time, as long as each piece is taken in time; `sent` is called with the
        number of bytes of each.
        """
        self._ask(
            "PUT",
            path,
            urllib3.Timeout(connect=TIMEOUT_S, read=UPLOADED_S),
            body=RequestBody(content, sent),
            headers=self.headers | {"Content-Length": str(len(content))},
        )

    def stream(self, path: str, timeout_s: float | None = None, **query: object) -> Iterator[bytes]:
        """Yield the pieces of a path's answer, as they come, until it ends or is cut.

        Between two of them `timeout_s` may pass; None is no bound.
        """
        try:
            reply = self._pool.request(
                "GET",
                f"{self.url}{path}?{urlencode(query)}",
                timeout=urllib3.Timeout(connect=TIMEOUT_S, read=timeout_s),
                preload_content=False,
            )
            if reply.status != HTTPStatus.OK:
                raise RefusedError(reply.status, _text(reply, path))
            yield from reply.stream(STREAM_PIECE)
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(type(error).__name__) from None

    def _json(
        self,
        method: str,
        path: str,
        timeout_s: float = TIMEOUT_S,
        most_mib: int = MOST_MIB,
        **sent: Any,
    ) -> Any:
        try:
            timeout = urllib3.Timeout(connect=min(CONNECT_S, timeout_s), read=timeout_s)
            return json.loads(self._ask(method, path, timeout, most_mib, **sent))
        except (ValueError, RecursionError) as error:
            raise UnreadableError(type(error).__name__) from None

    def _ask(
        self,
        method: str,
        path: str,
        timeout: urllib3.Timeout,
        most_mib: int = MOST_MIB,
        **sent: Any,
    ) -> str:
        try:
            reply = self._pool.request(
                method, f"{self.url}{path}", timeout=timeout, preload_content=False, **sent
            )
            text = _text(reply, path, most_mib)
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(type(error).__name__) from None
        if reply.status != HTTPStatus.OK:
            raise RefusedError(reply.status, text)
        return text


class Dashboard(JsonServer):
    """Asks a stack's head."""

    def __init__(self, outputs: StackOutputs) -> None:
        super().__init__(outputs.dashboard_url, outputs.bearer)


def _text(reply: urllib3.BaseHTTPResponse, path: str, most_mib: int = MOST_MIB) -> str:
    try:
        return bounded.content(reply, most_mib).decode(errors="replace")
    except bounded.TooLongError as error:
        raise TooLongError(f"the server answers {path.partition('?')[0]} with {error}") from None
