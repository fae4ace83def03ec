"""What a program logs is in the store, in any of its processes, and never in its way."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import trainyard
from tests.waiting import wait_for
from trainyard import figures
from trainyard.client import history, rows
from trainyard.figures import Figures
from trainyard.store.objects import FolderStore
from trainyard.tracking import run_folder

ROOT = Path(__file__).parents[3]
RUN = "mine"


def logged(store: FolderStore) -> list[dict[str, Any]]:
    """Return the rows of the run, without their times."""
    found = run_folder.logged(store, RUN).rows
    assert all(row.pop("time") > 1e9 for row in found)
    return found


def _ended(code: str) -> None:
    """Run a program of the run to its end."""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=30)


def test_figures_of_all_kinds_are_rows_by_step(store, capsys):
    trainyard.log(acc=0.5, step=3)
    trainyard.log({"loss/valid": np.float32(0.25)}, step=3)
    trainyard.log(acc=torch.tensor(0.75))
    trainyard.log({"step": 9, "acc": True})
    trainyard.log(acc=float("nan"), step=10)
    expected = [
        {"step": 3, "acc": 0.5, "loss/valid": 0.25},
        {"step": 4, "acc": 0.75},
        {"step": 9, "acc": 1},
        {"step": 10, "acc": None},
    ]
    wait_for("the store", lambda: logged(store) == expected)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"a": "text"}, "'a' is a str: log numbers"),
        ({"a": torch.zeros(2)}, "'a' has more than one value: log numbers"),
        ({"a" * 300: 1}, "names have 1 to 200 printable letters"),
        ({"a\nb": 1}, "names have 1 to 200 printable letters"),
        ({5: 1}, "names have 1 to 200 printable letters"),
        ({"time": 1}, "'time' is the name of a column that every row has"),
        ({"step": "x", "b": 1}, "ValueError: invalid literal"),
        ({f"m{i}": i for i in range(1100)}, "a process logs at most 1000 names"),
    ],
)
def test_what_cannot_be_kept_is_told_once_and_ends_nothing(store, capsys, bad, told):
    for _ in range(2):
        trainyard.log(fine=2)
        trainyard.log({**bad, "good": 1})
    wait_for("the store", lambda: any(row.get("fine") for row in logged(store)))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]


def test_a_million_steps_stay_a_small_file_with_its_first_and_last_row(store, monkeypatch):
    monkeypatch.setattr(figures, "MOST_ROWS", 100)
    mine = Figures(store, RUN)
    mine._thread.start()
    for step in range(10_000):
        mine.add({"loss": 1 / (step + 1)}, step)
        if step % 500 == 0:
            mine.add({"acc": step}, step)
    mine.end()
    found = logged(store)
    losses = [row["step"] for row in found if "loss" in row]
    assert 50 <= len(losses) <= 101
    assert (losses[0], losses[-1]) == (0, 9_999)
    assert sum("acc" in row for row in found) == 20  # rare ones are all there


def test_all_processes_and_starts_of_a_run_count_and_the_newest_most(store):
    for moment, acc in (("2", 0.2), ("1", 0.1)):
        row = {"step": 1, "time": 1.5e9, "acc": acc, f"only{moment}": 1}
        store.write(f"{RUN}/logged/{moment}.jsonl", json.dumps(row).encode())
    store.write(f"{RUN}/logged/3.jsonl", b'{"step": "x"}\n{"no step": 1}\nbroken')
    assert logged(store) == [{"step": 1, "acc": 0.2, "only1": 1, "only2": 1}]


def test_a_process_that_ends_at_once_has_stored_all(store):
    """Also one of a fork, and what a thread has logged just before its end."""
    code = (
        "import os, threading, trainyard\n"
        "trainyard.log(a=1, step=1)\n"
        "if os.fork() == 0:\n"
        "    trainyard.log(b=2, step=1)\n"
        "    raise SystemExit\n"
        "os.wait()\n"
        "thread = threading.Thread(target=lambda: trainyard.log(c=3, step=1))\n"
        "thread.start(); thread.join()\n"
    )
    _ended(code)
    assert logged(store) == [{"step": 1, "a": 1, "b": 2, "c": 3}]


def test_a_worker_that_is_killed_after_its_training_has_stored_all(store):
    """Ray kills its workers soon after their function has returned."""
    code = (
        "import os, threading, time, trainyard\n"
        "trainyard.log(a=1, step=1)\n"
        "time.sleep(1)\n"
        "thread = threading.Thread(target=lambda: trainyard.log(a=2, step=2))\n"
        "thread.start(); thread.join()\n"
        "time.sleep(1)\n"
        "os._exit(0)\n"
    )
    _ended(code)
    assert [row["a"] for row in logged(store)] == [1, 2]


def test_a_store_that_is_away_is_told_once_and_has_all_later(store, monkeypatch, capsys):  # F22
    write, failures = FolderStore.write, [OSError("away"), OSError("away")]

    def away(self: FolderStore, name: str, content: bytes) -> None:
        if failures:
            raise failures.pop()
        write(self, name, content)

    monkeypatch.setattr(FolderStore, "write", away)
    trainyard.log(acc=1)
    wait_for("the store", lambda: [row["acc"] for row in logged(store)] == [1])
    assert capsys.readouterr().err.count("is stored when it answers again") == 1


def test_outside_of_a_job_nothing_is_kept_and_that_is_told(monkeypatch, capsys):
    monkeypatch.delenv("TRAINYARD_RUN", raising=False)
    monkeypatch.setattr(figures, "_kept", {})
    trainyard.log(acc=1)
    trainyard.log(acc=2)
    assert capsys.readouterr().err.count("nothing is kept") == 1


def test_what_is_best_is_asked_of_the_goals(store, capsys):
    trainyard.goal("loss/valid @1", "min")
    trainyard.goal("acc", "max")
    for figure, mode in (("acc", "best"), ("a" * 300, "min"), (5, "max"), ("acc", ["max"])):
        trainyard.goal(figure, mode)
    for step, loss in enumerate((0.5, float("nan"), 0.25, 0.75)):
        trainyard.log({"loss/valid @1": loss, "acc": step}, step=step)
    wait_for("the store", lambda: len(logged(store)) == 4)
    goals = run_folder.logged(store, RUN).goals
    assert [*goals.items()] == [("loss/valid @1", "min"), ("acc", "max")]
    job = {"job": "j", "started": "2026-01-01T00:00:00+00:00", "status": "FAILED"}
    store.write(f"{RUN}/{run_folder.JOBS}", run_folder.lines([job]))
    run = history.read_run(store, RUN)
    assert (run.best, history.best(run)) == (0.25, "min loss/valid @1 0.25")
    assert [*run_folder.best_first(run.metrics, run.goals)] == [2, 0, 3, 1]
    assert run_folder.best(run.metrics, {}) is None  # a guess by names is none
    [line] = capsys.readouterr().err.splitlines()  # once for all of them
    assert "goal 'best' of 'acc': give 'max' or 'min' of at most 20 names" in line


@pytest.mark.parametrize("odd", [7, ["acc"], {"acc": {}}, {"a" * 300: "max"}, {"acc": "x"}])
def test_goals_of_a_stranger_count_only_if_they_are_goals(store, odd):
    more = {f"m{number}": "min" for number in range(100)}
    for moment, goals in (("1", odd), ("2", more)):
        store.write(f"{RUN}/logged/{moment}.jsonl", json.dumps({"goals": goals}).encode())
    assert run_folder.logged(store, RUN) == ([], dict([*more.items()][:20]), [])


def test_they_stand_wherever_figures_stand(store):
    trainyard.log({"perplexity@5": 7.5, "acc": 0.5}, step=20)
    wait_for("the store", lambda: bool(logged(store)))
    job = {"job": "j", "started": "2026-01-01T00:00:00+00:00", "status": "FAILED"}
    store.write(f"{RUN}/{run_folder.JOBS}", run_folder.lines([job]))
    run = history.read_run(store, RUN)
    [row], columns = rows.table_of_runs([rows.of_run(run, "")])
    assert columns == ["run", "epochs", "job", "perplexity@5", "acc", "started"]
    assert (row["epochs"], row["job"], row["acc"]) == ("step 20", "FAILED", 0.5)
    summary = run_folder.sum_up(store, RUN)
    assert summary is not None
    assert json.loads(summary)["last"]["perplexity@5"] == 7.5


def test_the_logger_and_the_callback_of_the_page_log(store):
    text = (ROOT / "docs/frameworks.md").read_text()
    code = text.partition("## Figures of a framework")[2].partition("```python")[2]
    found: dict[str, Any] = {}
    exec(code.partition("```")[0], found)
    found["Figures"]().log_metrics({"train/loss": 2.0}, step=3)
    found["Log"]().on_log(None, Mock(global_step=4), None, logs={"eval_loss": 1.5, "epoch": 1})
    expected = [{"step": 3, "train/loss": 2.0}, {"step": 4, "eval_loss": 1.5, "epoch": 1}]
    wait_for("the store", lambda: logged(store) == expected)
