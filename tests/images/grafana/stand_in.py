#!/usr/bin/env python3
"""NOT Grafana: answers its health check, and shows which files reached it.

GET /api/health answers as Grafana, with a version that says what this is. GET /files is a JSON
object of the provisioning files and of the dashboards in the folders that they name, path to
content. Settings are Grafana's: GF_SERVER_HTTP_PORT, GF_PATHS_PROVISIONING, GF_…__FILE.
"""

import json
import os
import re
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROVISIONING = Path(os.environ.get("GF_PATHS_PROVISIONING", "/etc/grafana/provisioning"))
PORT = int(os.environ.get("GF_SERVER_HTTP_PORT", "3000"))
FOLDER = re.compile(r"^\s*path:\s*[\"']?([^\"'\s]+)", re.MULTILINE)


class StandIn(BaseHTTPRequestHandler):
    """The two answers."""

    def do_GET(self) -> None:
        """Answer the health check, or the listing."""
        if self.path == "/api/health":
            self._answer(200, {"database": "ok", "version": "stand-in, not Grafana"})
        elif self.path == "/files":
            self._answer(200, _files())
        else:
            self._answer(404, {"message": "Not found"})

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _files() -> dict[str, str]:
    files = {str(path): path.read_text() for path in PROVISIONING.rglob("*") if path.is_file()}
    folders = {Path(found) for content in files.values() for found in FOLDER.findall(content)}
    for folder in folders:
        files |= {str(path): path.read_text() for path in folder.rglob("*.json")}
    return files


def _check_secret_files() -> None:
    """Stop where Grafana would: a setting's file that cannot be read."""
    for name, path in os.environ.items():
        if name.startswith("GF_") and name.endswith("__FILE"):
            try:
                Path(path).read_text()
            except OSError as error:
                sys.exit(f"error: {name}={path}: {error.strerror}")


if __name__ == "__main__":
    _check_secret_files()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ThreadingHTTPServer(("", PORT), StandIn).serve_forever()
