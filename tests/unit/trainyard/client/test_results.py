"""After its job a run shows its accuracies as a table, and the path of its picture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainyard import runs
from trainyard.client import results


@pytest.fixture
def run(stack, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = runs.Run(stack.storage_url, "first")
    run.start({"epochs": 2})
    run.write_metrics(
        [
            {"epoch": 0, "loss": 1.25, "train_acc": 0.5, "valid_acc": 0.4567},
            {"epoch": 1, "loss": 0.5, "train_acc": 0.75, "valid_acc": 0.8},
        ]
    )
    return run


def test_the_accuracies_are_a_table_and_the_picture_a_file(run, stack, tmp_path, capsys):
    table = ["epoch\ttraining\tvalidation", "1/2\t50.0%\t45.7%", "2/2\t75.0%\t80.0%"]
    results.tell(stack, "first")
    assert capsys.readouterr().out.splitlines() == table  # no picture has been made yet
    run.draw_curves()
    results.tell(stack, "first")
    picture = tmp_path / "cache" / "trainyard" / "curves" / "first.png"
    assert capsys.readouterr().out.splitlines() == [*table, f"curves: {picture}"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_job_that_keeps_no_run_has_nothing_to_tell(run, stack, capsys):
    results.tell(stack, "second")
    run.write_metrics([])
    results.tell(stack, "first")
    assert capsys.readouterr() == ("", "")


def test_a_store_that_is_away_fails_no_job_that_has_succeeded(stack, capsys):
    results.tell(replace(stack, storage_url="ftp://nowhere"), "first")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("warning: no table of run first: ")
