"""The command line's own faults; the rest is in tests/integration/training."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training import runs
from training.client import cli, drill, drill_command
from training.client.outputs import StackOutputs

EPOCH = {"epoch": 0, "loss": 1.25, "valid_acc": 0.5}


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    code = caught.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["alexnet", "--name", "A B"], "run name 'A B' is not"),
        (["nope"], "no job is called 'nope'"),
        (["alexnet", "--entrypoint-resources", "4"], "is no JSON object of amounts"),
        (["alexnet", "--runtime-env", "/nowhere"], "cannot read runtime environment /nowhere"),
        (["alexnet", "--outputs", "/nowhere"], "cannot read outputs file /nowhere"),
    ],
)
def test_a_fault_of_the_user_is_one_message(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "submit", *arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: {message}") or message in err
    assert err.count("\n") == 1


def test_unknown_options_are_usage_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "submit", "alexnet", "--what") == 2
    assert call(monkeypatch, "drill", "disk-loss", "first") == 2
    assert call(monkeypatch, "drill", "store-loss", "first", "--seconds", "0") == 2


def test_a_drill_asks_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stack: StackOutputs
) -> None:
    monkeypatch.setattr(drill_command, "connect", lambda *_: (None, stack))
    monkeypatch.setattr(drill, "check", lambda *_: None)
    monkeypatch.setattr(drill, "carry_out", lambda *_: pytest.fail("was not asked"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert call(monkeypatch, "drill", "head-loss", "first") == 1
    assert "provokes a head-loss in stack 'dev', for all that runs there" in capsys.readouterr().err


def test_runs_of_a_store_without_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outputs_file: Callable[..., Path],
    values: dict[str, Any],
    tmp_path: Path,
) -> None:
    run = runs.Run(values["storageUrl"], "first")
    run.start({"epochs": 2})
    run.write_metrics([EPOCH])
    path = str(outputs_file(values))
    call(monkeypatch, "runs", "--outputs", path)
    header, line = capsys.readouterr().out.splitlines()
    assert header.split("\t")[:4] == ["run", "epochs", "loss", "valid_acc"]
    assert line.split("\t")[:4] == ["first", "1/2", "1.25", "0.5"]

    call(monkeypatch, "show", "first", "--outputs", path)
    assert 'config      {"epochs": 2}' in capsys.readouterr().out
    target = str(tmp_path / "c.png")
    assert call(monkeypatch, "show", "first", "--curves", target, "--outputs", path) == 1
    assert "has no curves yet" in capsys.readouterr().err
    assert call(monkeypatch, "show", "second", "--outputs", path) == 1
    assert "no run is called 'second'" in capsys.readouterr().err


FILE = "cluster_name: trainyard\nauth: {ssh_user: canary}\n"


@pytest.mark.parametrize("old_mode", [None, 0o644])
def test_the_cluster_file_is_written_for_its_user_alone(  # A22 A23 A24 F38
    old_mode: int | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outputs_file: Callable[..., Path],
    values: dict[str, Any],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "ray_cluster_config.yaml"
    if old_mode is not None:
        file.write_text("a longer file of another stack, which is replaced as a whole " * 9)
        file.chmod(old_mode)
    outputs = str(outputs_file(values | {"rayClusterFile": FILE}))
    assert call(monkeypatch, "cluster-file", "--outputs", outputs) == 0
    assert capsys.readouterr().out == (
        "Generating ray config file ray_cluster_config.yaml using IP from head instance\n"
    )
    assert file.read_text() == FILE
    assert file.stat().st_mode & 0o777 == 0o600

    other = tmp_path / "none" / "other.yaml"
    assert call(monkeypatch, "cluster-file", "-o", str(other), "--outputs", outputs) == 1
    assert f"cannot write {other} (No such file" in capsys.readouterr().err


def test_a_stack_of_this_machine_has_no_cluster_file_and_needs_no_tunnel(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outputs_file: Callable[..., Path],
    values: dict[str, Any],
) -> None:
    path = str(outputs_file(values))
    assert call(monkeypatch, "cluster-file", "--outputs", path) == 1
    assert "stack 'dev' has no cluster file" in capsys.readouterr().err
    assert call(monkeypatch, "tunnel", "--outputs", path) == 0
    assert "stack 'dev' runs on this machine" in capsys.readouterr().out
