"""A run's log of failed workers: one line each, without a traceback.

Ray Train itself logs only tracebacks, and nothing at all if the run goes on.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ray.train import ControllerError, UserCallback

from trainyard.dev_session.worker import JOB_VARIABLE, SESSION_VARIABLE
from trainyard.errors import JobError
from trainyard.resume import code_faults

if TYPE_CHECKING:
    from ray.train.v2._internal.execution.context import TrainRunContext

ADDRESS = re.compile(r"\bip: ([\w.:]+)")  # in Ray's message about a lost worker
LONGEST = 200  # characters of a reason; Ray lists possible causes
MEND = "it comes again at each start, so it is not restarted: mend the code, "
SUBMIT = "then submit it again under the same --name: the run goes on from its last checkpoint"
SAVE = "and save it: this session runs it again"


class LostWorkers(UserCallback):
    """Logs each failure in the job's log; Ray Train calls it in the controller's process."""

    def __init__(self, max_failures: int) -> None:
        self._allowed = max_failures
        self._failures = 0
        self._last = ""

    def after_report(self, *_: Any, **__: Any) -> None:
        """Forgets the last error: the workers have come further."""
        self._last = ""

    def after_exception(
        self,
        run_context: TrainRunContext,  # noqa: ARG002
        worker_exceptions: dict[int, Exception],
    ) -> None:
        """Prints which worker failed, where, why, and what comes next.

        Raises:
            ControllerError: with a JobError, which ends the run: a worker's own, or one that names
                a fault of the code.
        """
        for error in worker_exceptions.values():
            if fault := job_error(error):
                raise ControllerError(fault)
        rank, error = min(worker_exceptions.items(), key=lambda failure: failure[0])
        more = f" (and {len(worker_exceptions) - 1} more)" if len(worker_exceptions) > 1 else ""
        text = str(error).strip() or type(error).__name__
        found = ADDRESS.search(text)
        where = f" on {found[1]}" if found else ""
        reason = text.splitlines()[-1].strip()[:LONGEST]
        if any(_is_taken_away(error) for error in worker_exceptions.values()):
            told = f"Worker {rank}{more}{where} ended with its node, as it had notice"
            print(f"{told}; the run goes on from the last checkpoint.", flush=True)  # noqa: T201
            return
        if faults := self._faults_of_code(worker_exceptions):
            rank, error = min(faults.items(), key=lambda failure: failure[0])
            told = code_faults.error_line(error)
            # In a session of `train dev` the job's workers are told of it.
            again = SAVE if SESSION_VARIABLE in os.environ.get(JOB_VARIABLE, "") else SUBMIT
            raise ControllerError(JobError(f"worker {rank}{more} failed: {told}; {MEND}{again}"))
        self._failures += 1
        after = (
            f"restart {self._failures} of {self._allowed}, from the last checkpoint"
            if self._failures <= self._allowed
            else f"--max-failures {self._allowed} allows no restart"
        )
        print(f"Worker {rank}{more}{where} has failed; {after}. {reason}", flush=True)  # noqa: T201

    def _faults_of_code(self, errors: dict[int, Exception]) -> dict[int, Exception]:
        """The errors that are faults of the code, by worker.

        PyTorch raises RuntimeError for wrong shapes and for lost peers: it is a fault of the code
        if it comes twice with the same words at the same place, and no epoch in between.
        """
        if faults := {rank: each for rank, each in errors.items() if code_faults.is_one(each)}:
            return faults
        if any(type(error) is not RuntimeError for error in errors.values()):
            return {}
        last, self._last = self._last, code_faults.error_line(errors[min(errors)])
        return errors if last == self._last else {}


def job_error(error: BaseException) -> JobError | None:
    """Return the JobError that a worker raised or exited with; None for any other error."""
    raised = getattr(error, "_base_exc", error)  # Ray's wrapper, which adds the traceback
    if isinstance(raised, SystemExit):  # of a trainer without `job.fit`
        return code_faults.exit_reason(raised)
    return JobError(code_faults.message(raised)) if isinstance(raised, JobError) else None


def _is_taken_away(error: Exception) -> bool:
    """Whether the worker ended because its node was drained, which Ray Train does not count."""
    error = getattr(error, "health_check_failure", error)
    return bool(getattr(error, "preempted", False))
