"""A run's files in its folder, as the job itself reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainyard.runs import Run

EPOCHS = [{"epoch": i, "loss": 2.0 - i, "valid_acc": 0.1 * i} for i in range(2)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path.as_uri(), "first")


def test_history_written_anew_replaces_the_old(run: Run) -> None:
    run.write_metrics(EPOCHS)
    run.write_metrics(EPOCHS[:1])
    assert run.metrics() == EPOCHS[:1]


def test_a_run_that_starts_again_has_no_picture_of_its_earlier_end(run: Run) -> None:
    run.start({})
    run.end()
    assert run.read("curves.png") is None  # it has no epoch
    run.write_metrics(EPOCHS)
    run.end()
    assert (run.read("curves.png") or b"").startswith(b"\x89PNG")
    run.start({})
    assert run.read("curves.png") is None


def test_a_run_ends_well_without_its_picture(
    run: Run, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.start({})
    run.write_metrics(EPOCHS)
    monkeypatch.setattr("trainyard.curves.of_run", lambda *_: [].pop())
    run.end()
    assert capsys.readouterr().out.startswith("warning: curves.png is missing: IndexError: ")
