"""A run whose workers fail says so in one line."""

from __future__ import annotations

from typing import Any

import pytest
from ray.train import ControllerError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

from trainyard.errors import JobError
from trainyard.lost_workers import LONGEST, LostWorkers

KILLED = """The actor died unexpectedly before finishing this task.
\tclass_name: RayTrainWorker
\tpid: 516
\tip: 172.19.0.4
The actor died because its node has died. """
NOTHING: Any = None


def test_a_lost_worker_is_one_line_with_its_address_and_what_comes_next(  # D48
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = LostWorkers(2)
    for _ in range(3):
        lost.after_exception(NOTHING, {0: RuntimeError(KILLED)})
    reason = "The actor died because its node has died."
    assert capsys.readouterr().out.splitlines() == [
        f"Worker 0 on 172.19.0.4 has failed; {after}. {reason}"
        for after in (
            "restart 1 of 2, from the last checkpoint",
            "restart 2 of 2, from the last checkpoint",
            "--max-failures 2 allows no restart",
        )
    ]


def test_of_several_the_first_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    errors = {2: RuntimeError("x"), 1: ValueError("Traceback\n  line\n" + "y" * 1000)}
    LostWorkers(1).after_exception(NOTHING, errors)
    after = "restart 1 of 1, from the last checkpoint"
    said = f"Worker 1 (and 1 more) has failed; {after}. {'y' * LONGEST}\n"
    assert capsys.readouterr().out == said


def test_an_error_without_words_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    LostWorkers(0).after_exception(NOTHING, {0: KeyError()})
    assert capsys.readouterr().out.endswith("no restart. KeyError\n")


def test_a_node_that_had_notice_counts_as_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    lost, error = LostWorkers(0), RuntimeError(KILLED)
    error.preempted = True  # type: ignore[attr-defined]  # as in Ray
    wrapped = RuntimeError("the health check failed")
    wrapped.health_check_failure = error  # type: ignore[attr-defined]
    for each in (error, wrapped):
        lost.after_exception(NOTHING, {0: each})
        said = capsys.readouterr().out
        assert "ended with its node, as it had notice; the run goes on from the last" in said
        assert "allows no restart" not in said
    lost.after_exception(NOTHING, {0: RuntimeError(KILLED)})
    assert "allows no restart" in capsys.readouterr().out


def test_a_fault_that_a_restart_does_not_mend_ends_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = UserExceptionWithTraceback(JobError("do this"), "a traceback")
    with pytest.raises(ControllerError, match="do this"):
        LostWorkers(2).after_exception(NOTHING, {0: RuntimeError(KILLED), 1: error})
    assert capsys.readouterr().out == ""
