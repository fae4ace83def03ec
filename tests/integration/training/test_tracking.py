"""What runs log to a real MLflow with passwords, and that its faults stay its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.integration.training.conftest import service, wait_for
from tests.ports import free_ports
from training import checkpoints, objects, tracking
from training.runs import Run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PASSWORD = "canary-password-0123456789"
JOB_DEADLINE_S = 300
START_DEADLINE_S = 120
CONFIG = {"job": "tiny", "epochs": 2, "data": "digits", "max_images": None, "lr": 1e-4}
EPOCHS = [
    {"epoch": i, "loss": 2.0 - i, "train_acc": 0.1 * i, "minutes": 0.5 * (i + 1)} for i in range(3)
]
LOSSES = [(0, 2.0), (1, 1.0), (2, 0.0)]


@dataclass
class Server:
    """A tracking server, up or not, and a user's way to it."""

    url: str
    credentials: Path
    up: Callable[[], AbstractContextManager[None]]

    @property
    def env(self) -> dict[str, str]:
        """What a node of a stack with MLflow has."""
        return {
            tracking.URI_VARIABLE: self.url,
            tracking.CREDENTIALS_VARIABLE: str(self.credentials),
        }

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        """MLflow's API, without its client."""
        reply = requests.post(
            f"{self.url}/api/2.0/mlflow/{path}", json=body, auth=("admin", PASSWORD), timeout=30
        )
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """The same for requests that change nothing."""
        reply = requests.get(
            f"{self.url}/api/2.0/mlflow/{path}", params=query, auth=("admin", PASSWORD), timeout=30
        )
        reply.raise_for_status()
        found: dict[str, Any] = reply.json()
        return found

    def run(self, name: str) -> dict[str, Any]:
        """The only run of that name."""
        experiments = self.ask("experiments/search", max_results=100)["experiments"]
        ids = [each["experiment_id"] for each in experiments]
        text = f"attributes.run_name = '{name}'"
        found = self.ask("runs/search", experiment_ids=ids, filter=text).get("runs", [])
        assert len(found) == 1, found
        return dict(found[0])

    def steps(self, name: str, metric: str) -> list[tuple[int, float]]:
        """All values of a metric, in the order of their steps."""
        run_id = self.run(name)["info"]["run_id"]
        found = self.get("metrics/get-history", run_id=run_id, metric_key=metric)
        return sorted((int(m.get("step", 0)), m["value"]) for m in found.get("metrics", []))


def tracking_server(folder: Path) -> Server:
    """As the stack's: with passwords, SQLite, and artifacts through the server."""
    [port] = free_ports(1)
    (folder / "auth.ini").write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\n"
        f"database_uri = sqlite:///{folder}/users.db\nadmin_username = admin\n"
        f"admin_password = {PASSWORD}\nauth_cache_ttl_seconds = 300\n"
    )
    (folder / "credentials").write_text(
        f"[mlflow]\nmlflow_tracking_username = admin\nmlflow_tracking_password = {PASSWORD}\n"
    )
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--app-name=basic-auth", "--workers=1"),
        *("--host=127.0.0.1", f"--port={port}", "--serve-artifacts"),
        f"--backend-store-uri=sqlite:///{folder}/mlflow.db",
        f"--artifacts-destination={folder}/artifacts",
    ]
    env = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")} | {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "x" * 32,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        return requests.get(f"{url}/health", timeout=1).ok

    @contextmanager
    def up() -> Iterator[None]:
        with service(command, env, folder / "server.log"):
            wait_for("MLflow", answers, START_DEADLINE_S)
            yield

    return Server(url, folder / "credentials", up)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that is up."""
    server = tracking_server(tmp_path_factory.mktemp("mlflow"))
    with server.up():
        yield server


@pytest.fixture
def open_run(
    cluster: Any, running: Server, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Run]:
    """Opens runs in the bucket, with the environment of a node."""
    own = (*tracking.SETTINGS, tracking.USER_VARIABLE, tracking.PASSWORD_VARIABLE)
    for name in own:  # what is set meanwhile is gone afterwards
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    aws = {k: v for k, v in cluster.ray_env.items() if k.startswith("AWS_")}
    for name, value in (aws | running.env).items():
        monkeypatch.setenv(name, value)
    return lambda name: Run("s3://ray", name)


def store_checkpoint(run: Run, name: str, folder: Path) -> None:
    (folder / "checkpoint.pt").write_bytes(name.encode())
    model = {"architecture": "alexnet", "classes": ["a", "b"], "file": "checkpoint.pt"}
    checkpoints.store(objects.open_url(run.url), name, folder, model)


def versions(server: Server, model: str) -> list[dict[str, Any]]:
    found = server.get("model-versions/search", filter=f"name='{model}'")
    return list(found.get("model_versions", []))


def test_a_run_logs_what_made_it_and_what_it_made(
    open_run: Callable[[str], Run], running: Server, cluster: Any, tmp_path: Path
) -> None:  # A45
    run = open_run("logged")
    config = CONFIG | {f"option_{i}": i for i in range(120)}  # MLflow takes 100 at once
    run.start(config)
    run.write_metrics(EPOCHS[:1])
    run.write_metrics(EPOCHS[:2])
    store_checkpoint(run, "checkpoint_000002-aaaa", tmp_path)
    run.end()
    found = running.run("logged")
    params = {each["key"]: each["value"] for each in found["data"]["params"]}
    assert params == {k: v if isinstance(v, str) else json.dumps(v) for k, v in config.items()}
    tags = {each["key"]: each["value"] for each in found["data"]["tags"]}
    assert tags["trainyard.run"] == "s3://ray/logged"
    assert found["info"]["status"] == "FINISHED"
    assert running.steps("logged", "loss") == LOSSES[:2]
    assert running.steps("logged", "epoch") == []
    artifacts = running.get("artifacts/list", run_id=found["info"]["run_id"])
    assert [each["path"] for each in artifacts["files"]] == ["curves.png"]
    [version] = versions(running, "tiny")
    assert version["source"] == "s3://ray/logged/checkpoint_000002-aaaa"
    assert cluster.keys("logged/checkpoint_000002-aaaa/manifest.json")
    tags = {each["key"]: each["value"] for each in version["tags"]}
    assert json.loads(tags["classes"]) == ["a", "b"]
    manifest = json.loads(cluster.read("logged/checkpoint_000002-aaaa/manifest.json"))
    assert tags["sha256"] == manifest["files"]["checkpoint.pt"]["sha256"]


def test_a_run_that_goes_on_logs_to_the_same_and_each_step_once(
    open_run: Callable[[str], Run], running: Server, tmp_path: Path
) -> None:  # A45
    for epochs, name in ((2, "checkpoint_000002-aaaa"), (3, "checkpoint_000003-bbbb")):
        run = open_run("goes-on")
        run.start(CONFIG | {"job": "goes", "epochs": epochs})
        for done in range(epochs):  # from its beginning, at other times: the last had no checkpoint
            again = [record | {"minutes": 9.0 + epochs} for record in EPOCHS[: done + 1]]
            run.write_metrics(again)
        run.write_metrics([*EPOCHS[: epochs - 1], EPOCHS[epochs - 1] | {"test_acc": 0.5}])
        folder = tmp_path / name
        folder.mkdir()
        store_checkpoint(run, name, folder)
        run.end()
    open_run("goes-on").end()
    assert running.steps("goes-on", "loss") == LOSSES
    assert running.steps("goes-on", "test_acc") == [(1, 0.5), (2, 0.5)]
    tags = {each["key"]: each["value"] for each in running.run("goes-on")["data"]["tags"]}
    assert tags["resumed.epochs"] == "3"
    found = sorted(version["source"] for version in versions(running, "goes"))
    assert found == [
        f"s3://ray/goes-on/{n}" for n in ("checkpoint_000002-aaaa", "checkpoint_000003-bbbb")
    ]


def test_who_logs_the_same_at_the_same_time_logs_it_once(
    open_run: Callable[[str], Run], running: Server
) -> None:
    driver = open_run("twice")
    driver.start(CONFIG)
    runs = [driver, open_run("twice"), open_run("twice")]
    for run in runs:
        run.write_metrics(EPOCHS)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda run: run.end(), runs))
    assert running.steps("twice", "loss") == LOSSES
    assert running.steps("twice", "train_acc") == [(i, pytest.approx(0.1 * i)) for i in range(3)]


def test_a_driver_that_does_not_get_to_its_end_has_failed(
    open_run: Callable[[str], Run], running: Server
) -> None:
    code = (
        "import sys; from training.runs import Run; Run('s3://ray', 'fails').start({'job': 'f'});"
        "sys.exit('error: no')"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=110)
    assert running.run("fails")["info"]["status"] == "FAILED"


def test_a_wrong_password_is_warned_of_once_and_never_shown(
    open_run: Callable[[str], Run],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text(
        "[mlflow]\nmlflow_tracking_username = admin\nmlflow_tracking_password = canary-wrong\n"
    )
    monkeypatch.setenv(tracking.CREDENTIALS_VARIABLE, str(wrong))
    run = open_run("refused")
    run.start(CONFIG)
    run.write_metrics(EPOCHS)
    run.end()
    out = "".join(capfd.readouterr())
    assert out.count("warning: MLflow at 127.0.0.1:") == 1
    assert "canary" not in out
    assert run.metrics() == EPOCHS


def test_a_server_that_never_answers_delays_nothing_for_long(
    open_run: Callable[[str], Run],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(tracking.URI_VARIABLE, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(tracking, "START_S", 2.0)
        run = open_run("silent")
        begun = time.monotonic()
        run.start(CONFIG)
        for _ in range(50):
            run.write_metrics(EPOCHS)
        assert time.monotonic() - begun < 20
        run.end()
    assert "".join(capfd.readouterr()).count("warning: ") == 1


def test_a_server_that_is_down_stops_no_training(
    open_run: Callable[[str], Run],
    running: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(tracking.URI_VARIABLE, f"http://127.0.0.1:{free_ports(1)[0]}")
    run = open_run("down")
    run.start(CONFIG)
    run.write_metrics(EPOCHS)
    run.end()
    out = "".join(capfd.readouterr())
    assert "warning: MLflow at 127.0.0.1:" in out
    assert PASSWORD not in out
    assert run.metrics() == EPOCHS


def test_a_job_is_logged(cluster: Any, running: Server, tmp_path: Path) -> None:  # A45
    node = tmp_path / "env.yaml"  # what the nodes of a stack with MLflow have
    node.write_text(json.dumps({"env_vars": running.env}))
    options = ["--name", "tracked", "--runtime-env", str(node), "--"]
    small = ["--max-images", "24", "--batch-size", "24", "--epochs", "2"]
    result = cluster.train("submit", "alexnet", *options, *small, timeout=JOB_DEADLINE_S)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "warning: MLflow" not in result.stdout
    assert [step for step, _ in running.steps("tracked", "loss")] == [0, 1]
    sources = [version["source"] for version in versions(running, "alexnet")]
    newest = [key for key in cluster.keys("tracked/") if key.endswith("manifest.json")][-1]
    assert f"s3://ray/{newest.removesuffix('/manifest.json')}" in sources
    tags = {each["key"]: each["value"] for each in running.run("tracked")["data"]["tags"]}
    assert tags["trainyard.job"].startswith("raysubmit_")
    assert len(tags["mlflow.source.git.commit"].removesuffix("-dirty")) == 40
