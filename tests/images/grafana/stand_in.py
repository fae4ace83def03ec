#!/usr/bin/env python3
"""NOT Grafana: answers its health check, shows which files reached it, and a panel's last values.

GET /api/health answers as Grafana, with a version that says what this is. GET /files is a JSON
object of the provisioning files and of the dashboards in the folders that they name, path to
content. GET /d-solo/UID/…?panelId=N, as Ray's dashboard frames it, is a page with what the panel's
queries have now; a variable without a value in the address stands for all. Settings are Grafana's:
GF_SERVER_HTTP_PORT, GF_PATHS_PROVISIONING, GF_…__FILE.
"""

import html
import json
import os
import re
import signal
import sys
import urllib.parse
import urllib.request
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROVISIONING = Path(os.environ.get("GF_PATHS_PROVISIONING", "/etc/grafana/provisioning"))
PORT = int(os.environ.get("GF_SERVER_HTTP_PORT", "3000"))
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
LABEL = re.compile(r"\{\{(\w+)\}\}")
SOURCE = re.compile(r"^ +name: (\S+)\n(?:.*\n)*? +url: (\S+)$", re.MULTILINE)
FOLDER = re.compile(r"^\s*path:\s*[\"']?([^\"'\s]+)", re.MULTILINE)


class StandIn(BaseHTTPRequestHandler):
    """The three answers."""

    def do_GET(self) -> None:
        """Answer the health check, the listing, or a panel."""
        if self.path == "/api/health":
            self._answer(200, {"database": "ok", "version": "stand-in, not Grafana"})
        elif self.path == "/files":
            self._answer(200, _files())
        elif self.path.startswith("/d-solo/") and (shown := _panel(self.path)):
            self._send(200, "text/html", shown.encode())
        else:
            self._answer(404, {"message": "Not found"})

    def _answer(self, status: int, content: object) -> None:
        self._send(status, "application/json", json.dumps(content).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _files() -> dict[str, str]:
    files = {str(path): path.read_text() for path in PROVISIONING.rglob("*") if path.is_file()}
    folders = {Path(found) for content in files.values() for found in FOLDER.findall(content)}
    for folder in folders:
        files |= {str(path): path.read_text() for path in folder.rglob("*.json")}
    return files


def _panel(address: str) -> str:
    """A panel's title and a line for each series; empty if there is no such panel or source."""
    parts = urllib.parse.urlsplit(address)
    asked = dict(urllib.parse.parse_qsl(parts.query))
    files = _files()
    sources = dict(found for text in files.values() for found in SOURCE.findall(text))
    source = sources.get(asked.get("var-datasource", ""))
    for board in (json.loads(text) for path, text in files.items() if path.endswith(".json")):
        folded = [panel for row in board["panels"] for panel in row.get("panels", [])]
        for panel in board["panels"] + folded:
            wanted = (parts.path.split("/")[2], asked.get("panelId"))
            if source and (board["uid"], str(panel["id"])) == wanted:
                lines = [line for each in panel["targets"] for line in _values(source, each, asked)]
                shown = html.escape("\n".join(lines))
                return f"<h1>{html.escape(panel['title'])}</h1><pre>{shown}</pre>"
    return ""


def _values(source: str, target: dict[str, str], asked: dict[str, str]) -> list[str]:
    query = VARIABLE.sub(lambda found: asked.get(f"var-{found[1]}", ".*"), target["expr"])
    address = f"{source}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        series = json.load(answer)["data"]["result"]
    shown = [(defaultdict(str, each["metric"]), each["value"][1]) for each in series]
    legend = LABEL.sub(r"{\1}", target["legendFormat"])
    return [f"{legend.format_map(labels)} = {value}" for labels, value in shown]


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
