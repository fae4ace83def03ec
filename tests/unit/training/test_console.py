"""Progress lines become a bar on a terminal and stay lines elsewhere."""

from __future__ import annotations

import io

import pytest

from training import progress
from training.client.console import CLEAR_LINE, LogWriter, bar

PREFIX = "(RayTrainWorker pid=7) "


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_the_log_is_passed_on_unchanged() -> None:
    out = io.StringIO()
    writer = LogWriter(out)
    text = f"one\n{PREFIX}progress: epoch 1/2 batch 3/4 1.0 batches/s\nhal"
    writer.write(text)
    writer.close()
    assert out.getvalue() == text


def test_a_terminal_gets_one_bar_that_moves() -> None:
    out = Terminal()
    writer = LogWriter(out)
    writer.write(f"one\n{PREFIX}progress: epoch 1/2 batch 1/4 1.0 bat")
    writer.write(f"ches/s\n{PREFIX}progress: epoch 1/2 batch 4/4 2.0 batches/s\ntwo\nrest")
    writer.close()
    assert out.getvalue() == (
        f"{CLEAR_LINE}one\n"
        f"{CLEAR_LINE}[######------------------] epoch 1/2 batch 1/4 1.0 batches/s"
        f"{CLEAR_LINE}[########################] epoch 1/2 batch 4/4 2.0 batches/s"
        f"{CLEAR_LINE}two\n{CLEAR_LINE}rest"
    )


@pytest.mark.parametrize(
    ("done", "total", "cells"), [(0, 9, 0), (9, 9, 24), (12, 9, 24), (1, 2, 12), (0, 0, 0)]
)
def test_the_bar_shows_the_share_that_is_done(done: int, total: int, cells: int) -> None:
    assert bar(done, total, "x") == f"[{'#' * cells}{'-' * (24 - cells)}] x"


def test_batches_pass_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    out = Terminal()
    assert list(progress.watched([1, 2, 3], "epoch 1/1")) == [1, 2, 3]
    LogWriter(out).write(capsys.readouterr().out)
    assert "epoch 1/1 batch 3/3" in out.getvalue()
