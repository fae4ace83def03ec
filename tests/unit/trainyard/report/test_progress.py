"""An epoch reports its progress: each second for a bar, each half minute for a log."""

import io
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from trainyard.client.log_writer import LogWriter
from trainyard.report import progress
from trainyard.tracking.run_folder import PROGRESS_VARIABLE


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def bar(monkeypatch) -> None:
    """A client draws a bar."""
    monkeypatch.setenv(PROGRESS_VARIABLE, "1")


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


def test_an_epoch_of_minutes_has_a_line_each_half_minute(clock, capsys):  # A33
    assert list(progress.report_batches(Epoch(20, 6, clock), "epoch 1/2")) == list(range(20))
    assert capsys.readouterr().out.splitlines() == [
        f"epoch 1/2: batch {done} of 20, 0.2 batches/s" for done in (5, 10, 15, 20)
    ]


def test_a_short_epoch_has_none(clock, capsys):
    list(progress.report_batches(Epoch(20, 1, clock), "epoch 1/2"))
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("bar")
def test_a_bar_moves_each_second_and_becomes_full(clock, capsys):  # A33
    list(progress.report_batches(Epoch(5, 0.5, clock), "epoch 1/2"))
    found = [progress.parse(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [("", progress.Batches("epoch 1/2", done, 5, 2.0)) for done in (2, 4, 5)]


@pytest.mark.usefixtures("bar")
def test_batches_that_nobody_has_counted_are_lines_and_no_bar(clock, capsys):
    list(progress.report_batches(batches(7, 10, clock), "epoch 1/2"))
    said = capsys.readouterr().out
    assert said.splitlines() == [
        "epoch 1/2: batch 3, 0.1 batches/s",
        "epoch 1/2: batch 6, 0.1 batches/s",
    ]
    out = io.StringIO()
    LogWriter(out).write(said)
    assert out.getvalue() == said


@pytest.mark.usefixtures("bar")
def test_batches_of_an_earlier_start_count_but_for_the_rate(clock, capsys):
    list(progress.report_batches(batches(2, 0.5, clock), "epoch 1/2", total=5, before=3))
    assert progress.parse(capsys.readouterr().out) == (
        "",
        progress.Batches("epoch 1/2", 5, 5, 2.0),
    )


def test_of_all_workers_one_tells(clock, capsys):
    assert len(list(progress.report_batches(Epoch(9, 60, clock), "epoch 1/2", tells=False))) == 9
    assert capsys.readouterr().out == ""


RECORDS = [
    progress.Batches("epoch 1/2", 3, None, 0.5),
    progress.Epoch(3),
    progress.Batches("epoch 1/2", 3, 40, 12.0),
    progress.Restored("s3://ray/first/c-3", 3, "10.0.0.5"),
    progress.Restored("s3://ray/first/c-4", 3, "10.0.0.5", 9),
    progress.Noticed(3, 12),
    progress.Restored("s3://ray/first/c-3", None, "10.0.0.5"),
]


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_read_as_it_was_told(record, capsys):
    progress.print_record(record)
    prefix = "\x1b[36m(RayTrainWorker pid=7)\x1b[0m "
    line = f"{prefix}{capsys.readouterr().out.rstrip()} [repeated 2x across cluster]"
    assert progress.parse(line) == (prefix, record)


@pytest.mark.parametrize(
    "line",
    [
        "progress: ",
        "progress: half",
        "progress: epoch x is trained",
        f"progress: epoch {'9' * 5000} is trained",
        "progress: epoch 1/2: batch 3 of many, 1.0 batches/s",
        "Restored from checkpoint s3://ray/first/c-3: some epochs are done, on 10.0.0.5",
    ],
)
def test_what_others_write_is_no_record(line):  # F39
    assert progress.parse(line) is None


def test_people_read_records_as_sentences():  # D48
    assert [record.log_line for record in RECORDS] == [
        "progress: epoch 1/2: batch 3, 0.5 batches/s",
        "progress: epoch 4 is trained",
        "progress: epoch 1/2: batch 3 of 40, 12.0 batches/s",
        "Restored from checkpoint s3://ray/first/c-3: 3 epochs are done, on 10.0.0.5",
        "Restored from checkpoint s3://ray/first/c-4: 3 epochs and 9 batches are done, on 10.0.0.5",
        "Notice: a node of this run is to go; epoch 4 is stored up to batch 12",
        "Restored on 10.0.0.5 from checkpoint: s3://ray/first/c-3",
    ]
