"""The live view, against a dashboard of loopback: once in a pipe, again and again on a terminal."""

from __future__ import annotations

import http.server
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.hostile import TITLE
from trainyard import runs
from trainyard.access.terminal import CONTROL, ESCAPE

GIB = 2**30
ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"  # of a terminal's second screen
DEADLINE_S = 60
NODE = {
    "raylet": {"isHeadNode": True, "nodeManagerAddress": "10.0.0.1", "state": "ALIVE"},
    "cpu": 37.4,
    "mem": [16 * GIB, 12 * GIB, 25.0, 4 * GIB],
    "gpus": [{"utilizationGpu": 93, "memoryUsed": 20480, "memoryTotal": 81920}],
    "disk": {"/": {"free": 50 * GIB, "total": 100 * GIB}},
}


def _job(name: str, status: str, run: str, start: int) -> dict[str, Any]:
    texts = {"entrypoint": "python x.py", "job_id": "", "message": f"it starts {TITLE}"}
    times = {"start_time": start, "end_time": start + 1000 if status == "SUCCEEDED" else None}
    more = {"metadata": {"run": run, "user": "ada"}, "runtime_env": {}}
    return {"type": "SUBMISSION", "submission_id": name, "status": status} | texts | times | more


class Dashboard(http.server.BaseHTTPRequestHandler):
    asked = 0  # times that its jobs were
    jobs = (_job("one", "SUCCEEDED", "first", 1000), _job("two", "PENDING", "second", 2000))

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        Dashboard.asked += path == "/api/jobs/"
        answers: dict[str, Any] = {
            "/api/version": {"version": "4", "ray_version": ray.__version__, "ray_commit": "x"},
            "/api/jobs/": self.jobs,
            "/nodes": {"data": {"summary": [NODE]}},
        }
        body = json.dumps(answers.get(path, {"data": {"result": {"result": []}}})).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def outputs(outputs_file: Callable[..., Path], values: dict[str, Any]) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dashboard)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    run = runs.Run(values["storageUrl"], "first")
    run.start({"epochs": 3})
    run.write_metrics([{"epoch": 0, "loss": 1.25}, {"epoch": 1, "loss": 0.5}])
    url = f"http://127.0.0.1:{server.server_address[1]}"
    yield str(outputs_file(values | {"dashboardUrl": url}))
    server.shutdown()
    server.server_close()


def _command(outputs: str) -> list[str]:
    return [sys.executable, "-m", "trainyard.client", "watch", "--outputs", outputs]


def test_a_pipe_gets_one_look(outputs: str) -> None:
    done = subprocess.run(
        _command(outputs), capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "head\t37 %\t4.0/16.0 GiB\t93 %\t20.0/80.0 GiB\t50.0 GiB" in lines
    assert [line.split("\t")[:3] for line in lines if "\tada\t" in line] == [
        ["two", "PENDING", "second"],
        ["one", "SUCCEEDED", "first"],
    ]
    assert any(line.startswith("first\t2/3\tSUCCEEDED\t0.5") for line in lines)
    assert not CONTROL.search(done.stdout.replace("\t", "").replace("\n", ""))
    assert re.match(r"this was one look: `\S*train watch` draws again on a terminal", done.stderr)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_terminal_is_drawn_again_and_restored_at_the_end(
    sent: signal.Signals, code: int, outputs: str
) -> None:
    leader, follower = pty.openpty()
    sized = os.environ | {"COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
    process = subprocess.Popen(_command(outputs), env=sized, stdout=follower, stderr=follower)
    os.close(follower)
    seen, deadline = b"", time.monotonic() + DEADLINE_S
    try:
        while seen.count(b"Ctrl-C ends") < 2:  # it has drawn twice
            assert time.monotonic() < deadline, seen
            seen += _read(leader)
        process.send_signal(sent)
        while chunk := _read(leader, wait=DEADLINE_S):
            seen += chunk
        assert process.wait(DEADLINE_S) == code, seen
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert seen.count(ENTERS) == seen.count(LEAVES) == 1
    assert seen.rindex(LEAVES) > seen.rindex(b"Ctrl-C ends")
    assert b"Traceback" not in seen
    text = re.sub(ESCAPE, "", seen.decode())
    for said in ("stack dev", "37 %", "93 %", "first", "2/3", "two waits: it starts \\x1b]0;"):
        assert said in text
    assert TITLE.encode() not in seen  # F39


def _read(leader: int, wait: float = 1) -> bytes:
    """What the terminal shows next; b"" if nothing came, or at its end."""
    if not select.select([leader], [], [], wait)[0]:
        return b""
    try:
        return os.read(leader, 65536)
    except OSError:  # Linux says so at the end of the program
        return b""
