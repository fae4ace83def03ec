"""The table of a search, from results as Tune gives them."""

import math
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from ray.exceptions import RayTaskError
from ray.tune.experiment import Trial

from trainyard.errors import JobError
from trainyard.search import trials
from trainyard.tracking.runs import Run

ACCURACY = trials.Objective({"batch_size": "d", "dropout_probability": ".4f"}, "valid_acc", "max")
LOSS = trials.Objective({"learning_rate": ".3g"}, "valid_loss", "min")


class Found(list[Any]):
    """Results in the order of a resumed search, which is not that of its trials."""

    num_errors = 1


def _result(number: int, accuracies: list[float], *, error: bool = False) -> SimpleNamespace:
    rows = [
        {
            "epoch": epoch,
            "val_accuracy": accuracy,
            "val_loss": 1.0,
            "train_accuracy": accuracy,
            "train_loss": 1.0,
            "time_total_s": 60.0 * (epoch + 1),
        }
        for epoch, accuracy in enumerate(accuracies)
    ]
    return SimpleNamespace(
        path=f"bucket/search/train_func_00f8a_{number:05d}_{number}_batch_size=32_2026-11-22",
        config={"batch_size": 32 + number, "dropout_probability": 0.5},
        metrics={"generated": True} if rows else None,
        metrics_dataframe=pandas.DataFrame(rows) if rows else None,
        error=RuntimeError("a fault") if error else None,
    )


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path.as_uri(), "search")


def test_each_row_has_its_own_trial(run, capsys):
    found = Found([_result(2, [0.3, 0.8]), _result(0, [0.2]), _result(1, [], error=True)])
    assert trials.finish(run, found, ACCURACY) == ""
    out = capsys.readouterr().out
    rows = [line.split()[:2] for line in out.splitlines() if line.startswith("0")]
    assert rows == [["00000", "32"], ["00001", "33"], ["00002", "34"]]
    assert "Best trial: 00002 (batch_size 34, dropout_probability 0.5), Valid. Acc.: 80.000%" in out
    assert "Search completed after 3 trials, 1 failed" in out
    assert [record["valid_acc"] for record in run.metrics()] == [0.3, 0.8]


def test_the_best_trial_of_a_loss_has_the_least(run, capsys):
    found = Found([_result(0, [0.2, 0.9]), _result(1, [0.3])])
    for result, rate, loss in zip(found, (0.01, 0.001), (1.75, 1.5), strict=True):
        result.config = {"learning_rate": rate}
        result.metrics_dataframe["val_loss"] = loss
    assert trials.finish(run, found, LOSS) == ""
    out = capsys.readouterr().out
    assert (
        "trial  learning_rate  epochs  valid_loss\n00000           0.01       2     1.7500" in out
    )
    assert "Best trial: 00001 (learning_rate 0.001), Valid. Loss: 1.5000" in out
    assert [record["valid_loss"] for record in run.metrics()] == [1.5]


def test_a_trial_that_diverged_is_not_the_best(run, capsys):  # F61
    found = Found([_result(number, [0.5, 0.5]) for number in range(3)])
    losses = ([math.nan, math.nan], [math.nan, 1.5], [2.0, math.inf])
    for result, loss in zip(found, losses, strict=True):
        result.config = {"learning_rate": 0.1}
        result.metrics_dataframe["val_loss"] = loss
    assert trials.finish(run, found, LOSS) == ""
    assert "Best trial: 00001 " in capsys.readouterr().out
    found[1].metrics_dataframe["val_loss"] = found[2].metrics_dataframe["val_loss"] = math.nan
    assert trials.finish(run, found, LOSS).startswith("no epoch of the 3 trials has a finite valid")


def test_without_any_epoch_there_is_no_best(run):
    fault = trials.finish(run, Found([_result(0, [], error=True)]), ACCURACY)
    assert fault == "all 1 trials failed: the log above says why"


def test_a_trial_that_failed_before_it_reported_has_a_row(run, capsys):  # F32
    failed = _result(0, [], error=True)
    failed.config = None  # as in Tune after the search was resumed
    assert trials.finish(run, Found([failed, _result(1, [0.4])]), ACCURACY) == ""
    assert "\n00000           -                    -       0          - | failed\n" in (
        capsys.readouterr().out
    )


def test_a_long_silence_ends_with_a_line(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr("trainyard.search.trials.time.monotonic", lambda: now)
    shown = trials.TrialLines(3, ACCURACY)
    tried = []
    for number, status in enumerate((Trial.TERMINATED, Trial.RUNNING, Trial.PENDING)):
        tried.append(Trial("tried", stub=True, trial_id=f"0f8a_{number:05d}"))
        tried[-1].status = status
    for step in (29.0, 0.5):
        now += step
        shown.on_step_end(1, tried)
        assert capsys.readouterr().out == ""
    now += 0.5
    shown.on_step_end(2, tried)
    assert capsys.readouterr().out == "search: 1 of 3 trials have ended, 1 run\n"
    shown.on_step_end(3, tried)
    assert capsys.readouterr().out == ""


def test_trials_that_cannot_be_counted_end_no_search(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr("trainyard.search.trials.time.monotonic", lambda: now)
    shown = trials.TrialLines(3, ACCURACY)
    now += 30
    for _ in range(2):
        shown.on_step_end(1, [SimpleNamespace(status="RUNNING")])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("warning: the progress of the search is not shown: ")


@pytest.mark.parametrize(
    ("cause", "recovers"),
    [(NameError("x"), False), (JobError("do this"), False), (RuntimeError("lost a peer"), True)],
)
def test_a_fault_of_a_trials_code_ends_the_trial(cause, recovers, monkeypatch):
    monkeypatch.setattr(Trial, "handle_error", Trial.handle_error)
    monkeypatch.setattr(Trial, "local_path", "")  # no file for the error
    trials.end_trials_at_faults()
    trial = Trial("test", stub=True, max_failures=1)
    trial.handle_error(RayTaskError("f", "a traceback", cause).as_instanceof_cause())
    assert trial.should_recover() is recovers


def test_a_search_that_goes_on_is_drawn_with_its_earlier_epochs(run, monkeypatch):
    now, drawn = 100.0, []
    monkeypatch.setattr("trainyard.search.trials.time.monotonic", lambda: now)
    monkeypatch.setattr(
        "trainyard.search.trials.curves.of_search",
        lambda *args: drawn.append(args) or b"picture",
    )
    report = {"train_loss": 1.0, "train_accuracy": 0.5, "val_loss": 1.0, "time_total_s": 60.0}
    reports = [report | {"epoch": epoch, "val_accuracy": 0.1 * epoch} for epoch in range(3)]
    monkeypatch.setattr("trainyard.search.state.reports_of", lambda _: reports[:2])
    resumed, new, waiting = (Trial("tried", stub=True, trial_id=f"0f8a_{i:05d}") for i in range(3))
    for number, trial in enumerate((resumed, new, waiting)):
        trial.config = {"batch_size": 32 + number, "seed": 1}
    resumed.run_metadata.last_result = {"training_iteration": 2}
    shown = trials.TrialCurves(run.url, ACCURACY)
    shown.on_step_begin(1, [resumed, new, waiting])
    shown.on_step_end(1, [])
    assert run.read("curves.png") is None  # nothing is new
    for trial, result in ((resumed, reports[2]), (new, reports[0])):
        shown.on_trial_result(2, [], trial, result)
    shown.on_step_end(2, [])
    assert run.read("curves.png") == b"picture"
    [(*named, found)] = drawn
    assert named == ["search", {"valid_acc": "max"}]
    assert [(each.name, each.values["batch_size"], len(each.history)) for each in found] == [
        ("00000", 32, 3),
        ("00001", 33, 1),
    ]
    now += 9
    shown.on_trial_result(3, [], new, reports[1])
    shown.on_step_end(3, [])
    assert len(drawn) == 1
    now += 1
    shown.on_step_end(4, [])
    assert len(drawn[1][-1][1].history) == 2


def test_an_epoch_that_cannot_be_drawn_ends_no_search(run, capsys):
    shown = trials.TrialCurves(run.url, ACCURACY)
    trial = Trial("tried", stub=True, trial_id="0f8a_00000")
    trial.config = {}
    shown.on_step_begin(1, [trial])
    shown.on_trial_result(1, [], trial, {"epoch": 0})
    shown.on_step_end(1, [])
    assert "warning: an epoch of trial 00000 is not drawn: KeyError" in capsys.readouterr().out
