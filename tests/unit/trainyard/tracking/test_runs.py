"""A run's files in its folder, as the job itself reads them."""

import json

import pytest

from trainyard.tracking.run_folder import CONFIG, METRICS, STARTS
from trainyard.tracking.runs import Run

EPOCHS = [{"epoch": i, "loss": 2.0 - i, "valid_acc": 0.1 * i} for i in range(2)]


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path.as_uri(), "first")


def test_history_written_anew_replaces_the_old(run):
    run.write_metrics(EPOCHS)
    run.write_metrics(EPOCHS[:1])
    assert run.metrics() == EPOCHS[:1]


def test_a_run_s_files_are_json_for_any_reader(run):  # F61
    run.start({"epochs": 1, "least": float("nan")})
    run.write_metrics([{"epoch": 0, "loss": float("inf")}])
    lines = [line for name in (STARTS, METRICS) for line in (run.read(name) or b"").splitlines()]
    for text in (run.read(CONFIG) or b"", *lines):
        assert json.loads(text, parse_constant=pytest.fail)
    assert run.metrics() == [{"epoch": 0, "loss": None}]


def test_a_run_that_starts_again_has_no_picture_of_its_earlier_end(run):
    run.start({})
    run.end()
    assert run.read("curves.png") is None  # it has no epoch
    run.write_metrics(EPOCHS)
    run.end()
    assert (run.read("curves.png") or b"").startswith(b"\x89PNG")
    run.start({})
    assert run.read("curves.png") is None


def test_a_run_ends_well_without_its_picture(run, capsys, monkeypatch):
    run.start({})
    run.write_metrics(EPOCHS)
    monkeypatch.setattr("trainyard.report.curves.of_run", lambda *_: [].pop())
    run.end()
    assert capsys.readouterr().out.startswith("warning: curves.png is missing: IndexError: ")


@pytest.mark.parametrize("goals", [{"acc": "best"}, {"acc": None}, {5: "max"}, {"a" * 300: "min"}])
def test_a_goal_that_is_none_is_refused(goals, tmp_path):
    with pytest.raises(ValueError, match="give 'max' or 'min' by the names of figures"):
        Run(tmp_path.as_uri(), "first", goals)
