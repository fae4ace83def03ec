"""A stack for the page of `train ui`: a head that answers from memory, and a folder of runs."""

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import ray
import requests

from tests import waiting, web
from tests.outputs import of_stack

TOKEN = "canary-token-0123456789"
HOSTILE = "<img src=x onerror=document.title='had'>"
SCRIPT = "<script>document.title='had'</script>"
GIB = 2**30
GUARD_TOKEN = "X-Trainyard-Token"
RAW_LOG = "/api/v0/logs/file"
ALERTS = "/api/v1/alerts"  # of Prometheus, which has the same address here
START_MS = 1_790_000_000_000


def job(number: int, status: str = "SUCCEEDED", **changes: Any) -> dict[str, Any]:
    """A job as Ray's job server has it: of run run-NUMBER, by one of three users."""
    began = START_MS + number * 60_000
    found = {
        "type": "SUBMISSION",
        "submission_id": f"raysubmit_{number:06}",
        "job_id": f"{number:08x}",
        "status": status,
        "entrypoint": "python -m trainyard.jobs.alexnet --epochs 20 --lr 0.01",
        "message": "",
        "start_time": began,
        "end_time": None if status in {"PENDING", "RUNNING"} else began + 600_000,
        "metadata": {
            "run": f"run-{number:04}",
            "user": ("ada", "grace", "linus")[number % 3],
            "job": "alexnet",
            "commit": "a0fd5dd",
            "demand": json.dumps([{"GPU": 9}] if status == "PENDING" else []),
        },
        "runtime_env": {"env_vars": {"TRAINYARD_RUN": f"run-{number:04}"}},
    }
    return found | changes


def write_run(store: Path, name: str, epochs: int = 12, **config: Any) -> None:
    """Writes a run whose curves depend on `lr`."""
    settings = {"epochs": 20, "lr": 0.01, "batch_size": 64, "model": "alexnet"} | config
    folder = store / name
    (folder / "checkpoint_000001-5d1c").mkdir(parents=True)
    (folder / "checkpoint_000001-5d1c/checkpoint.pt").write_bytes(b"weights")
    (folder / "config.json").write_text(json.dumps(settings))
    start = {"time": "2026-11-20T10:00:00+00:00", "commit": "a0fd5dd", "python": "3.11.2"}
    packages = {"torch": "2.11.0", "ray": ray.__version__}
    (folder / "starts.jsonl").write_text(
        json.dumps(
            start | {"packages": packages, "goals": {"valid_acc": "max", "val_accuracy": "max"}}
        )
        + "\n"
    )
    records = [epoch_record(number, float(settings["lr"])) for number in range(epochs)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))


def epoch_record(number: int, lr: float) -> dict[str, float]:
    """The record of an epoch, from 0."""
    done = 1 - math.exp(-(number + 1) * (0.05 + lr * 8))
    return {
        "epoch": number,
        "loss": round(2.3 - 2 * done, 4),
        "valid_loss": round(2.3 - 1.8 * done, 4),
        "train_acc": round(0.1 + 0.85 * done, 4),
        "valid_acc": round(0.1 + 0.75 * done, 4),
    }


def write_sweep(folder: Path, points: int = 12) -> None:
    """Writes the records of a sweep of Hydra, as `trainyard.client.sweep` does."""
    (folder / ".points").mkdir(parents=True)
    (folder / ".points/sweep.json").write_text('{"name": "s1", "goals": {"valid_acc": "max"}}')
    for number in range(points):
        lr = 10 ** -(1 + number % 4)
        width = 64 * (1 + number % 3)
        record = {
            "sweep": "s1",
            "job": f"raysubmit_{number}",
            "number": number,
            "folder": str(number),
            "overrides": [f"lr={lr:g}", f"width={width}", "seed=1"],
            "done": True,
            "error": "",
            "value": {"valid_acc": round(0.9 - abs(lr - 0.01) * 3 + width / 4000, 4)},
        }
        (folder / f".points/{number}.json").write_text(json.dumps(record))


class Head:
    """Answers like a head's dashboard, from `replies`: values by paths without a query.

    Attributes:
        asked: method and path of each request, with those that the client posts.
        sent: what was posted.
    """

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self.asked: list[tuple[str, str]] = []
        self.sent: list[bytes] = []
        self.replies: dict[str, Any] = {
            "/api/version": {"ray_version": ray.__version__},
            "/nodes": {"data": {"summary": [node("10.0.0.1", head=True), node("10.0.0.2")]}},
            ALERTS: {"data": {"alerts": [alert("NodeLost")]}},
            "/api/serve/applications/": {"applications": {"first": service("first")}},
        }
        self.log = "Epoch: 001/020 | Valid. Acc.: 30.7%\n"
        self.put(jobs)

    def log_pieces(self) -> Iterator[bytes]:
        yield self.log.encode(errors="surrogateescape")

    def put(self, jobs: list[dict[str, Any]]) -> None:
        self.replies["/api/jobs/"] = jobs

    def answer(self, path: str) -> Any:
        """The answer to a path; None for one that is not known."""
        if path in self.replies:
            return self.replies[path]
        if path.startswith("/api/v0/"):
            return {"data": {"result": {"result": []}}}
        name, _, rest = path.removeprefix("/api/jobs/").partition("/")
        known = [each for each in self.replies["/api/jobs/"] if isinstance(each, dict)]
        found = [each for each in known if each.get("submission_id") == unquote(name)]
        answers = {"": found and found[0], "logs": {"logs": self.log}, "stop": {"stopped": True}}
        return answers.get(rest) if found else None


def exchange_key(session: Any, address: str) -> str:
    """Opens the page as its script does: a session of requests, or a test client, gets the token.

    Returns:
        The address without the key.
    """
    url, _, key = address.partition("#key=")
    headers = {"Origin": url.rstrip("/"), GUARD_TOKEN: key}
    answer = session.post(f"{url}api/open", headers=headers)
    assert answer.status_code == 200, answer.text
    session.headers[GUARD_TOKEN] = answer.json()["token"]
    return url


@contextmanager
def serving(head: Head) -> Iterator[str]:
    """Serves a head on loopback; yields its address."""

    def answer(asked: web.Request) -> web.Said:
        path = asked.path.partition("?")[0]
        head.asked.append((asked.command, path))
        if asked.command == "POST":
            head.sent.append(asked.body)
        if path != ALERTS:
            assert asked.headers["Authorization"] == f"Bearer {TOKEN}"
        if path == RAW_LOG:
            asked.send_response(200)
            asked.send_header("Transfer-Encoding", "chunked")
            asked.end_headers()
            for piece in (*head.log_pieces(), b""):
                asked.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            return None
        found = head.answer(path)
        return 404 if found is None else 200, json.dumps(found).encode()

    with web.serving(answer) as server:
        yield server.url


def node(address: str, *, head: bool = False) -> dict[str, Any]:
    """A node of the dashboard's summary; the one without the head has a GPU."""
    gpu = {
        "name": "NVIDIA H100",
        "utilizationGpu": 87,
        "memoryUsed": 60_000,
        "memoryTotal": 81_559,
    }
    return {
        "hostname": "box" if head else "gpu-1",
        "cpu": 12.5 if head else 88.0,
        "mem": [64 * GIB, 40 * GIB, 37.5, 24 * GIB],
        "disk": {"/": {"total": 500 * GIB, "free": 30 * GIB if not head else 300 * GIB}},
        "gpus": [] if head else [gpu],
        "raylet": {"state": "ALIVE", "isHeadNode": head, "nodeManagerAddress": address},
    }


def alert(name: str) -> dict[str, Any]:
    """An alert that Prometheus raises."""
    return {
        "labels": {"alertname": name, "severity": "critical", "instance": "10.0.0.2:8080"},
        "annotations": {"summary": "a node has been lost for 5 minutes"},
        "state": "firing",
        "activeAt": "2026-11-20T10:00:00Z",
    }


def service(name: str) -> dict[str, Any]:
    """An application of Ray Serve with one replica."""
    deployment = {
        "replicas": [{"state": "RUNNING"}],
        "target_num_replicas": 1,
        "deployment_config": {"user_config": {"run": "run-0001", "checkpoint": "checkpoint_1"}},
        "message": "",
    }
    return {
        "name": name,
        "status": "RUNNING",
        "route_prefix": f"/{name}",
        "message": "",
        "deployments": {"model": deployment},
    }


def outputs_of(address: str, store: Path) -> dict[str, Any]:
    size = {"gpus": 0, "memoryMib": 65536, "objectStoreMib": 1024, "resources": {}}
    return of_stack(address, store) | {
        "prometheusUrl": address,
        "serveUrl": f"{address}/serve",
        "rayVersion": ray.__version__,
        "nodes": [
            {"name": "head", "cpus": 0} | size,
            {"name": "gpu-1", "cpus": 16, "hourlyCost": 2.5} | size | {"gpus": 1},
        ],
        "expiresAt": "2026-12-31T18:00:00+00:00",
    }


def write_outputs(path: Path, address: str, store: Path, **others: str) -> Path:
    """Writes the outputs as a private file, some with other values."""
    path.touch(mode=0o600)
    path.write_text(json.dumps(outputs_of(address, store) | others))
    return path


@contextmanager
def up(
    head: Head, folder: Path, store: Path, chosen: pytest.MonkeyPatch | None = None
) -> Iterator[Path]:
    """Serves a head; yields the file of its stack's outputs, which `train` uses if it is chosen."""
    with serving(head) as address:
        file = write_outputs(folder / "outputs.json", address, store)
        if chosen is not None:
            chosen.setenv("TRAINYARD_OUTPUTS", str(file))
        yield file


@contextmanager
def page_running(file: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Runs `train ui`; yields the address that opens it, and its process."""
    words = ("ui", "--no-open", "--port", "0", "--outputs", str(file))
    command = [sys.executable, "-m", "trainyard.client", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        try:
            assert served.stdout is not None
            yield served.stdout.readline().split()[1], served
        finally:
            served.kill()


VIEWER = ("viewer", "canary-password")


def start_service(file: Path, port: int, password: str | None) -> subprocess.Popen[str]:
    """Starts the page as a service.

    Args:
        file: with the outputs of the stack.
        port: on loopback.
        password: content of its file; None for no file.
    """
    path = file.with_name("page-password")
    if password is not None:
        path.write_text(password)
    options = ("--host=127.0.0.1", f"--port={port}", "--user=viewer", f"--password-file={path}")
    return subprocess.Popen(
        [sys.executable, "-m", "trainyard.client", "page", *options],
        env=os.environ | {"TRAINYARD_OUTPUTS": str(file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def service_running(file: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Runs the page as a service with the password of VIEWER; yields its address and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = start_service(file, port, f"{VIEWER[1]}\n")
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert served.poll() is None, served.communicate()
        return requests.get(f"{url}/health", timeout=20).ok

    try:
        waiting.wait_for("the page", answers)
        yield url, served
    finally:
        served.kill()
        served.communicate()
