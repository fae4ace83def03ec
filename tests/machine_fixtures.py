"""What this machine has in common for all stacks is each test's own here."""

import json
import socketserver
import tempfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from node import claims


@pytest.fixture(autouse=True)
def claimed(monkeypatch, tmp_path_factory) -> Path:
    """The folder of claims."""
    folder = tmp_path_factory.mktemp("claims")
    monkeypatch.setattr(claims, "FOLDER", folder)
    monkeypatch.setattr(claims, "TURN", "\0" + str(folder)[-100:])
    return folder


class Engine(socketserver.ThreadingUnixStreamServer):
    """A Docker Engine with some containers.

    Attributes:
        containers: what it knows of them, by name.
        refuses: statuses that it answers next, by the end of a request: `start`, `stop`, `exec`.
        calls: commands that ran in containers, and what was started and stopped.
        garbage: how many answers are nonsense.
        output: of commands, as JSON.
        hangs: what a command in the head waits for.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "docker.sock")
        self.containers: dict[str, dict[str, Any]] = {}
        self.refuses: dict[str, list[int]] = {}
        self.calls: list[str] = []
        self.garbage = 0
        self.output: Any = "said"
        self.hangs = Event()
        self.hangs.set()
        super().__init__(self.path, _Request)

    def add(self, name: str, status: str = "running", restart: str = "always") -> None:
        self.containers[name] = {
            "Id": name,
            "Name": f"/{name}",
            "HostConfig": {"RestartPolicy": {"Name": restart}},
            "State": {"Status": status, "Health": {"Status": "unhealthy"}},
        }


class _Request(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        *_, name, _ = path.split("/")
        if name == "containers":
            known = self.server.containers.values()
            asked = parse_qs(query)
            filters = json.loads(asked["filters"][0])
            assert (asked["all"], filters["network"]) == (["1"], ["lab"])
            self._answer(200, [c for c in known if c["State"]["Status"] in filters["status"]])
        elif path.startswith("/exec/"):
            self._answer(200, {"ExitCode": 0 if name == "good" else 3})
        else:
            found = self.server.containers.get(name)
            self._answer(200 if found else 404, found or {"message": "no such container"})
            if found and found["State"]["Status"] == "running":
                found["State"]["Health"]["Status"] = "healthy"

    def do_POST(self) -> None:
        *_, name, what = self.path.split("/")
        length = int(self.headers.get("Content-Length") or 0)
        content = json.loads(self.rfile.read(length) or "null")
        if refused := self.server.refuses.get(what):
            self._answer(refused.pop(0), {"message": "refused"})
        elif what == "exec":
            self.server.calls.append(f"{name}: {' '.join(content['Cmd'])}")
            self._answer(201, {"Id": "bad" if "fails" in content["Cmd"] else "good"})
        elif "/exec/" in self.path:
            self.server.hangs.wait(60)
            self._answer(200, self.server.output)
        else:
            self.server.calls.append(f"{what} {name}")
            self.server.containers[name]["State"]["Status"] = (
                "running" if what == "start" else "exited"
            )
            self._answer(204, None)

    def _answer(self, status: int, content: Any) -> None:
        self.send_response(status)
        self.end_headers()
        if self.server.garbage:
            self.server.garbage -= 1
            self.wfile.write(b"garbage")
        elif content is not None:
            self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A Docker Engine that listens at a socket, whose path must be short."""
    with tempfile.TemporaryDirectory() as folder, Engine(Path(folder)) as served:
        thread = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        served.hangs.set()
        served.shutdown()
        thread.join()
