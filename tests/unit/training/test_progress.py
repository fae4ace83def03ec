"""An epoch tells how far it is: each second for a bar, each half minute for a log."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from training import progress
from training.client.console import LogWriter
from training.run_folder import PROGRESS_VARIABLE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def batches(count: int, seconds: float, clock: list[float]) -> Iterator[int]:
    """Each takes its time."""
    for batch in range(count):
        clock[0] += seconds
        yield batch


class Epoch(list[int]):
    """Of a known length, each batch of it taking its time."""

    def __init__(self, count: int, seconds: float, clock: list[float]) -> None:
        super().__init__(range(count))
        self._arguments = (count, seconds, clock)

    def __iter__(self) -> Iterator[int]:
        return batches(*self._arguments)


def test_an_epoch_of_minutes_has_a_line_each_half_minute(  # A33
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(progress.watched(Epoch(20, 6, clock), "epoch 1/2")) == list(range(20))
    assert capsys.readouterr().out.splitlines() == [
        f"epoch 1/2: batch {done} of 20, 0.2 batches/s" for done in (5, 10, 15, 20)
    ]


def test_a_short_epoch_has_none(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    list(progress.watched(Epoch(20, 1, clock), "epoch 1/2"))
    assert capsys.readouterr().out == ""


def test_a_bar_moves_each_second_and_becomes_full(  # A33
    clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROGRESS_VARIABLE, "1")
    list(progress.watched(Epoch(5, 0.5, clock), "epoch 1/2"))
    said = [line.split()[4] for line in capsys.readouterr().out.splitlines()]
    assert said == ["2/5", "4/5", "5/5"]


def test_batches_that_nobody_has_counted_are_lines_and_no_bar(
    clock: list[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROGRESS_VARIABLE, "1")
    list(progress.watched(batches(7, 10, clock), "epoch 1/2"))
    said = capsys.readouterr().out
    assert said.splitlines() == [
        "epoch 1/2: batch 3, 0.1 batches/s",
        "epoch 1/2: batch 6, 0.1 batches/s",
    ]
    out = io.StringIO()
    LogWriter(out).write(said)
    assert out.getvalue() == said


def test_of_all_workers_one_tells(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(progress.watched(Epoch(9, 60, clock), "epoch 1/2", tells=False))) == 9
    assert capsys.readouterr().out == ""
