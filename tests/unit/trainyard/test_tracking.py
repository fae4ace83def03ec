"""Disabled tracking, and its settings and messages; MLflow itself is in integration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainyard import tracking
from trainyard.runs import Run

PASSWORD = "canary%password"


@pytest.fixture(autouse=True)
def _no_mlflow_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *tracking.SETTINGS,
        *(tracking.URI_VARIABLE, tracking.USER_VARIABLE, tracking.PASSWORD_VARIABLE),
    ):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_without_an_mlflow_nothing_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    run = Run(tmp_path.as_uri(), "first")
    assert tracking.of(run) is None
    run.start({"epochs": 1})
    run.write_metrics([{"epoch": 0, "loss": 1.0}])
    run.end()
    assert not (tmp_path / "first" / "tracking.json").exists()


def test_credentials_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_fault_is_warned_of_once_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(tracking.URI_VARIABLE, f"http://admin:{PASSWORD}@127.0.0.1:1")
    monkeypatch.setenv(tracking.PASSWORD_VARIABLE, PASSWORD)

    def broken(_: object) -> None:
        raise OSError(f"no way to http://admin:{PASSWORD}@127.0.0.1:1\nand more")

    monkeypatch.setattr(tracking.Tracking, "_client", broken)
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
