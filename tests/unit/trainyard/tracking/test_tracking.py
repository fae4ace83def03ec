"""Disabled tracking, and its settings and messages; MLflow itself is in integration."""

import json
import os
import signal
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call, create_autospec

import pytest
from mlflow import MlflowClient
from mlflow.utils import validation

from tests import ran, web
from trainyard.tracking import run_folder, tracking
from trainyard.tracking.mlflow_log import JOB_VARIABLE, MlflowLog
from trainyard.tracking.run_folder import CURVES
from trainyard.tracking.runs import Run

PASSWORD = "canary%password"


@pytest.fixture(autouse=True)
def _no_mlflow_of_the_caller(monkeypatch) -> None:
    for name in (
        *tracking.SETTINGS,
        *(tracking.URI_VARIABLE, tracking.USER_VARIABLE, tracking.PASSWORD_VARIABLE),
    ):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_without_an_mlflow_nothing_is_imported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    run = Run(tmp_path.as_uri(), "first")
    assert tracking.open_log(run) is None
    run.start({"epochs": 1})
    run.write_metrics([{"epoch": 0, "loss": 1.0}])
    run.end()
    assert not (tmp_path / "first" / "tracking.json").exists()


def test_credentials_are_read_as_they_are(tmp_path, monkeypatch):
    assert tracking._credentials() == {}
    file = tmp_path / "credentials"
    file.write_text(
        f"[mlflow]\nmlflow_tracking_username = admin\nmlflow_tracking_password = {PASSWORD}\n"
    )
    monkeypatch.setenv(tracking.CREDENTIALS_VARIABLE, str(file))
    assert tracking._credentials() == {
        "MLFLOW_TRACKING_USERNAME": "admin",
        "MLFLOW_TRACKING_PASSWORD": PASSWORD,
    }


def test_a_fault_is_warned_of_once_without_the_password(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(tracking.URI_VARIABLE, f"http://admin:{PASSWORD}@127.0.0.1:1")
    monkeypatch.setenv(tracking.PASSWORD_VARIABLE, PASSWORD)
    broken = OSError(f"no way to http://admin:{PASSWORD}@127.0.0.1:1\nand more")
    monkeypatch.setattr(tracking.RunLog, "_client", Mock(side_effect=broken))
    (tmp_path / "first").mkdir()
    run = Run(tmp_path.as_uri(), "first")
    run.start({"epochs": 1})
    run.write_metrics([{"epoch": 0, "loss": 1.0}])
    run.end()
    out = capsys.readouterr().out
    assert out.count("warning: MLflow at 127.0.0.1:1 does not accept the log of run first") == 1
    assert "no way to" in out
    assert "canary" not in out
    assert "and more" not in out
    assert run.metrics() == [{"epoch": 0, "loss": 1.0}]


@pytest.mark.parametrize(
    ("end", "told", "code"),
    [
        ("signal.raise_signal(signal.SIGTERM)", "KILLED", -signal.SIGTERM),
        ("sys.exit(1)", "FAILED", 1),
        ("run.end(); signal.raise_signal(signal.SIGTERM)", "", -signal.SIGTERM),
        # A fork, such as a loader's, dies without a word.
        ("os.fork() or signal.raise_signal(signal.SIGTERM); os.wait(); run.end()", "", 0),
    ],
)
def test_a_run_is_logged_as_it_ended(end, told, code, tmp_path):  # A45
    program = f"""
import os, signal, sys
from trainyard.tracking import tracking
from trainyard.tracking.runs import Run

class Log:
    describe = log = finish = lambda *_: None
    def stop(self, status):
        print(status, flush=True)

tracking.RunLog._find = lambda self: setattr(self, "_opened", Log()) or self._opened
run = Run({tmp_path.as_uri()!r}, "first")
run.start({{"job": "tiny"}})
{end}
"""
    done = ran.run(
        [sys.executable, "-c", program],
        env=os.environ | {tracking.URI_VARIABLE: "http://127.0.0.1:1"},
        timeout=60,
    )
    assert (done.stdout.strip(), done.returncode) == (told, code), done.stderr


@pytest.fixture
def client() -> Any:
    """MLflow's, with its own checks and no server; `logged` is what it has got."""
    logged: dict[str, dict[str, Any]] = {"metrics": {}, "params": {}, "tags": {}}

    def log_batch(_: str, **items: Any) -> None:
        validation._validate_batch_log_data(**dict.fromkeys(logged, ()) | items)
        for kind, each in items.items():
            logged[kind] |= {(item.key, getattr(item, "step", 0)): item.value for item in each}

    made: Any = create_autospec(MlflowClient, instance=True, logged=logged)
    made.get_run.return_value.data.params = {}
    made.get_metric_history.return_value = []
    made.log_batch.side_effect = log_batch
    made.log_artifact.side_effect = OSError("no room for pictures")
    return made


def test_mlflow_is_told_what_a_run_has_cost_until_its_end(client, tmp_path, monkeypatch):
    (tmp_path / "first").mkdir()
    run = Run(tmp_path.as_uri(), "first")
    log = MlflowLog(run, client, SimpleNamespace(run_id="1", start_time=0))
    monkeypatch.delenv(JOB_VARIABLE, raising=False)
    log.stop("FAILED")
    client.log_metric.assert_not_called()
    jobs = [{"job": "a", "cost": 3.0}, {"job": "b", "cost": 0.25}]  # the second one is this job's
    run.write(run_folder.JOBS, run_folder.lines(jobs))
    with web.serving(lambda _: (200, b'{"shares": [{"cost": 1.5}]}')) as queue:
        facts = {"job_submission_id": "b", "cost": f"{queue.url.removeprefix('http://')}/?since=1"}
        monkeypatch.setenv(JOB_VARIABLE, json.dumps({"metadata": facts}))
        log.stop("KILLED")
        client.log_metric.assert_called_once_with("1", "trainyard.cost", 4.5)
        log.finish("mine")
    assert client.log_metric.mock_calls == [call("1", "trainyard.cost", 4.5)] * 2
    ended = [each.args[1] for each in client.set_terminated.call_args_list]
    assert ended == ["FAILED", "KILLED", "FINISHED"]


def test_what_mlflow_refuses_takes_nothing_else_along(client, tmp_path, capsys):  # F74
    (tmp_path / "first").mkdir()
    run = Run(tmp_path.as_uri(), "first")
    run.write(CURVES, b"picture")
    info = SimpleNamespace(run_id="1", start_time=0)
    odd, good = {"odd!": 1.0, "..": 2.0}, {f"loss {at}": 0.5 for at in range(50)}
    history = [good | odd | {"minutes": "soon"} for _ in range(3)]
    for _ in ("worker", "driver"):
        log = MlflowLog(run, client, info)
        log.describe({"batch?": 1, "text": 9999 * "x", "epochs": 3})
        log.log(history)
        requests = client.log_batch.call_count
        log.log(history)  # the next epoch's
        assert client.log_batch.call_count == requests
    assert client.logged["metrics"].keys() == {(key, step) for key in good for step in (1, 2, 3)}
    assert client.logged["params"][("epochs", 0)] == "3"
    assert ("trainyard.run", 0) in client.logged["tags"]
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in said] == [
        f"warning: MLflow refuses {name!r} of the {kind}"
        for name, kind in (("batch?", "params"), ("odd!", "metrics"), ("..", "metrics"))
    ]
    with pytest.raises(OSError, match="no room for pictures"):
        log.finish("mine")
    client.set_terminated.assert_called_once_with("1", "FINISHED")
