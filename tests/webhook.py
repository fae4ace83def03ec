"""A webhook on this machine that keeps all posts."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Webhook:
    """Takes JSON at `url` while the context lasts.

    Attributes:
        url: of it.
        posted: the posts.
    """

    def __init__(self) -> None:
        self.posted: list[Any] = []
        posted = self.posted

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                posted.append(json.loads(self.rfile.read(length)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts that Alertmanager posted."""
        return [alert for post in list(self.posted) for alert in post["alerts"]]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
