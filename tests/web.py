"""The web server of tests: a function answers its requests."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Said = tuple[int, bytes] | tuple[int, bytes, dict[str, str]] | None


class Request(BaseHTTPRequestHandler):
    """A request: its `command`, `path`, `headers` and `body`."""

    protocol_version = "HTTP/1.1"
    server: "Web"

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = self.server.answer(self)
        if said is None:  # its connection ends
            self.close_connection = True
            return
        status, content, *more = said
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **dict(*more)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with suppress(ConnectionError):  # too much was not read
                self.wfile.write(content)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Web(ThreadingHTTPServer):
    """A server on loopback, which answers while its `serving` lasts.

    Attributes:
        answer: status and content of an answer, and headers; None if it has written itself, or
            nothing at all.
        url: of it, without a path.
    """

    def __init__(self, answer: Callable[[Request], Said], host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), Request)
        self.answer = answer
        self.url = f"http://{host}:{self.server_port}"


@contextmanager
def serving(
    answer: Callable[[Request], Said],
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Iterator[Web]:
    with Web(answer, host) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def files(folder: Path) -> Callable[[Request], Said]:
    """An answer of the files in a folder."""

    def answer(request: Request) -> Said:
        file = folder / request.path.partition("?")[0].strip("/")
        return (200, file.read_bytes()) if file.is_file() else (404, b"")

    return answer
