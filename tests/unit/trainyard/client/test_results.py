"""After its job a run shows its accuracies as a table, and the path of its picture."""

import sys
from dataclasses import replace

import pytest

from trainyard.client import results
from trainyard.client.errors import ClientError
from trainyard.client.history import find_run
from trainyard.client.store import open_store
from trainyard.tracking import runs


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
    table = ["epoch\ttraining\tvalidation\tloss"]
    table += ["1/2\t50.0%\t45.7%\t1.25", "2/2\t75.0%\t80.0%\t0.5"]
    run.draw_curves()
    results.tell(stack, "first")
    picture = tmp_path / "cache" / "trainyard" / "curves" / "first.png"
    assert capsys.readouterr().out.splitlines() == [*table, f"curves: {picture}"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_that_has_not_ended_is_drawn_and_a_search_has_its_own_picture(run, stack, tmp_path):
    store, target = open_store(stack), tmp_path / "first.PNG"
    results.save_curves(store, find_run(store, "first"), target)
    assert target.read_bytes().startswith(b"\x89PNG")
    run.write("curves.png", b"of all trials")
    results.save_curves(store, find_run(store, "first"), target)
    assert target.read_bytes() == b"of all trials"


def test_curves_that_cannot_be_saved(run, stack, tmp_path):
    store = open_store(stack)
    with pytest.raises(ClientError, match=r"cannot write .*gone/a\.png \(No such file"):
        results.save_curves(store, find_run(store, "first"), tmp_path / "gone/a.png")
    run.write_metrics([])
    for name, fault in (("a.png", "has no epoch to draw yet"), ("a.svg", "name the file a.png")):
        with pytest.raises(ClientError, match=fault):
            results.save_curves(store, find_run(store, "first"), tmp_path / name)
    assert not list(tmp_path.glob("a.*"))


def test_a_run_knows_its_page_in_mlflow(run, stack):  # A45
    store = open_store(stack)
    assert results.tracked_at(stack, store, "first") == ""
    there = stack.at({"trackingUrl": "http://127.0.0.1:5000"})
    assert results.tracked_at(there, store, "first") == ""
    run.write("tracking.json", b'{"run_id": "0af", "experiment_id": "3"}')
    page = "http://127.0.0.1:5000/#/experiments/3/runs/0af"
    assert results.tracked_at(there, store, "first") == page
    assert results.tracked_at(stack, store, "first") == ""  # the store outlives an MLflow
    for content in (b'{"run_id": "0af"}', b"[]", b'{"run_id": "a/../b", "experiment_id": "3"}'):
        run.write("tracking.json", content)
        assert results.tracked_at(there, store, "first") == ""


def test_a_job_that_keeps_no_run_has_nothing_to_tell(run, stack, capsys):
    results.tell(stack, "second")
    run.write_metrics([])
    results.tell(stack, "first")
    assert capsys.readouterr() == ("", "")


def test_a_store_that_is_away_fails_no_job_that_has_succeeded(stack, capsys):
    results.tell(replace(stack, storage_url="ftp://nowhere"), "first")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("warning: no results of run first: ")


def test_a_client_that_cannot_draw_fails_no_job_that_has_succeeded(run, stack, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    results.tell(stack, "first")
    out, err = capsys.readouterr()
    assert out.startswith("epoch\ttraining")
    assert "matplotlib" in err
