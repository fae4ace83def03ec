"""A run whose workers fail says so in one line."""

import pickle
import textwrap
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from ray.exceptions import RayActorError, RayTaskError
from ray.train import ControllerError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

from trainyard.dev_session.worker import job_configuration
from trainyard.errors import JobError
from trainyard.resume import code_faults
from trainyard.resume.lost_workers import LONGEST, LostWorkers

KILLED = """The actor died unexpectedly before finishing this task.
\tclass_name: RayTrainWorker
\tpid: 516
\tip: 172.19.0.4
The actor died because its node has died. """
NOTHING: Any = None


def test_a_lost_worker_is_one_line_with_its_address_and_what_comes_next(capsys):  # D48
    lost = LostWorkers(2)
    for _ in range(3):
        lost.after_exception(NOTHING, {0: RayActorError(error_msg=KILLED)})
    reason = "The actor died because its node has died."
    assert capsys.readouterr().out.splitlines() == [
        f"Worker 0 on 172.19.0.4 has failed; {after}. {reason}"
        for after in (
            "restart 1 of 2, from the last checkpoint",
            "restart 2 of 2, from the last checkpoint",
            "--max-failures 2 allows no restart",
        )
    ]


def test_of_several_the_first_is_told(capsys):
    errors = {2: RuntimeError("x"), 1: OSError("Traceback\n  line\n" + "y" * 1000)}
    LostWorkers(1).after_exception(NOTHING, errors)
    after = "restart 1 of 1, from the last checkpoint"
    said = f"Worker 1 (and 1 more) has failed; {after}. {'y' * LONGEST}\n"
    assert capsys.readouterr().out == said


def test_an_error_without_words_is_named(capsys):
    LostWorkers(0).after_exception(NOTHING, {0: OSError()})
    assert capsys.readouterr().out.endswith("no restart. OSError\n")


def test_a_node_that_had_notice_counts_as_no_failure(capsys):
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


def test_a_fault_that_a_restart_does_not_mend_ends_the_run(capsys):
    of_a_loader = JobError(
        "Caught it\nTraceback (most):\n  …\ntrainyard.errors.JobError: do this\n"
    )
    for fault in (JobError("do this"), of_a_loader, SystemExit("do this")):
        error = UserExceptionWithTraceback(fault, "a traceback")
        with pytest.raises(ControllerError, match=r"error:\n *do this$"):
            LostWorkers(2).after_exception(NOTHING, {0: RuntimeError(KILLED), 1: error})
    assert capsys.readouterr().out == ""


def _raised(code: Callable[[], object]) -> Exception:
    """An error as the controller gets it: with its note, without its traceback."""
    try:
        code()
    except Exception as error:
        code_faults.note(error)
        return cast(Exception, pickle.loads(pickle.dumps(error)))
    raise AssertionError


def _typo() -> object:
    return undefined  # type: ignore[name-defined]  # noqa: F821


def test_a_fault_of_the_code_is_not_a_lost_worker(capsys):
    line = _typo.__code__.co_firstlineno + 1
    # Its peers lose their connection to it.
    errors = {0: RuntimeError("Connection closed by peer"), 2: _raised(_typo)}
    with pytest.raises(ControllerError) as caught:
        LostWorkers(2).after_exception(NOTHING, errors)
    said = str(cast(Any, caught.value).controller_failure)
    assert said.startswith(
        "worker 2 (and 1 more) failed: NameError: name 'undefined' is not defined "
        f"(test_lost_workers.py, line {line}: return undefined"
    )
    assert said.endswith(
        "it is not restarted: mend the code, then submit it again under the same "
        "--name: the run goes on from its last checkpoint"
    )
    assert capsys.readouterr().out == ""


def test_in_a_session_of_train_dev_saving_the_code_is_enough(monkeypatch):
    job = job_configuration("{}", "x")  # as the session gives it
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", job)
    with pytest.raises(ControllerError, match="mend the code, and save it: this session runs it"):
        LostWorkers(2).after_exception(NOTHING, {0: _raised(_typo)})


def test_the_place_is_the_users_code_not_that_of_a_package():
    error = _raised(lambda: textwrap.wrap("x", 0))
    assert isinstance(error, ValueError)
    assert "(test_lost_workers.py, line " in code_faults.error_line(error)
    elsewhere: dict[str, Callable[[], object]] = {}  # as a stack's nodes have packages, by a link
    file = "/opt/lib/python3.11/site-packages/torch/linear.py"
    exec(compile("def fail(): raise ValueError('x')", file, "exec"), elsewhere)
    assert "(test_lost_workers.py, line " in code_faults.error_line(_raised(elsewhere["fail"]))


def test_an_error_of_rays_with_the_type_of_its_cause_is_no_fault_of_the_code():
    cause = ValueError("a block of data is lost")
    assert code_faults.is_one(cause)
    assert not code_faults.is_one(RayTaskError("f", "a traceback", cause).as_instanceof_cause())


def test_a_runtime_error_is_one_if_it_comes_twice_without_an_epoch_in_between(capsys):
    def wrong() -> object:
        return torch.ones(2, 3) @ torch.ones(4, 5)

    lost = LostWorkers(9)
    lost.after_exception(NOTHING, {0: _raised(wrong)})
    lost.after_report(NOTHING, [{}], None)
    lost.after_exception(NOTHING, {0: _raised(wrong)})
    lost.after_exception(NOTHING, {0: RuntimeError("another")})
    lost.after_exception(NOTHING, {0: _raised(wrong)})
    lost.after_exception(NOTHING, {0: _raised(wrong), 1: RayActorError(error_msg=KILLED)})
    assert capsys.readouterr().out.count("restart ") == 5
    with pytest.raises(ControllerError, match="shapes cannot be multiplied"):
        lost.after_exception(NOTHING, {0: _raised(wrong)})


def test_a_module_that_the_nodes_lack_is_named():
    error = ModuleNotFoundError("No module named 'xgboost.core'", name="xgboost.core")
    with pytest.raises(
        ControllerError, match=r"the nodes have no module 'xgboost': submit again with --pip"
    ):
        LostWorkers(2).after_exception(NOTHING, {0: error})
