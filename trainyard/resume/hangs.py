"""A hang: no batch for some minutes. Its stacks are kept in the run's folder, then it ends.

Ray Train replaces a worker whose process does not answer. One whose training waits, for a lock or
another worker, answers for ever. So each worker notes when its batch began, and the controller, in
the driver, asks now and then. Only loops of `session.epoch_batches` and `measured_batches` count:
how long other work may take, only its script knows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.train.v2._internal.callbacks.nccl_ras import dump_stack_trace
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

from trainyard.dev_session.worker import JOB_VARIABLE, SESSION_VARIABLE
from trainyard.housekeeping import housekeeping, reason
from trainyard.store.objects import open_url
from trainyard.tracking.run_folder import HANGS

if TYPE_CHECKING:
    from ray.train.v2._internal.execution.worker_group import Worker, WorkerGroup
    from ray.train.v2._internal.execution.worker_group.poll import WorkerGroupPollStatus

T = TypeVar("T")
MINUTES = 30.0  # unless the job says another number; 0 is for ever
LOOKS = 20  # in that time
ANSWER_S = 5.0  # for a worker that trains
STACK_S = 20.0  # for its stacks; py-spy has 5 s less
MOST_STACK = 200_000  # characters of a worker's

_began: list[float] = []  # by the monotonic clock; empty outside of loops


def noted(batches: Iterable[T]) -> Iterator[T]:
    """Pass batches on, and note when each began."""
    try:
        _began[:] = [time.monotonic()]
        for batch in batches:
            _began[:] = [time.monotonic()]
            yield batch
    finally:
        _began.clear()


def silent_s() -> float:
    """Return for how long this process has worked on its batch; 0 outside of loops."""
    return sum(time.monotonic() - each for each in _began)


class Hangs(WorkerGroupCallback):
    """Keeps a hang's stacks, and ends the workers that hang: Ray Train then restarts all of them.

    The URL is of the run's folder, and the minutes are those that a batch may take; 0 is for ever.
    """

    def __init__(self, url: str, minutes: float) -> None:
        # A worker that waits for a debugger does not hang.
        debugged = SESSION_VARIABLE in os.environ.get(JOB_VARIABLE, "")
        self._url, self._most_s = url, 0.0 if debugged else 60 * minutes
        self._workers: list[Worker] = []
        self._due = 0.0

    def after_worker_group_training_start(self, worker_group: WorkerGroup) -> None:
        """Watches these workers from now on."""
        self._workers = list(worker_group.get_workers()) if self._most_s else []

    def before_worker_group_shutdown(self, _: WorkerGroup) -> None:
        """Watches none."""
        self._workers = []

    def after_worker_group_poll_status(self, worker_group_status: WorkerGroupPollStatus) -> None:
        """Asks the workers, if it is time; those that failed are Ray Train's affair."""
        if time.monotonic() > self._due and self._workers and not worker_group_status.errors:
            self._due = time.monotonic() + self._most_s / LOOKS
            with housekeeping("a look for hangs failed"):
                self._look()

    def _look(self) -> None:
        """Ask each worker; where one hangs, keep the stacks of all, and end it."""
        answers = _ask(self._workers, ANSWER_S, silent_s)
        silent = {n: s for n, s in enumerate(answers) if isinstance(s, float) and s > self._most_s}
        if not silent:
            return
        found, self._workers = self._workers, []
        ranks = ", ".join(map(str, silent))
        told = f"no batch of worker {ranks} has ended for {max(silent.values()) / 60:.1f} minutes"
        with housekeeping("the stacks of a hang are not kept"):
            stacks = _ask(found, STACK_S, dump_stack_trace, STACK_S - 5)
            text = f"{told}\n"
            for rank, worker in enumerate(found):
                text += f"\n==> worker {rank}, pid {worker.metadata.pid} on "
                text += f"{worker.metadata.node_ip}, seconds in its batch: {answers[rank]} <==\n"
                text += f"{str(stacks[rank])[:MOST_STACK]}\n"
            name = f"{HANGS}/{datetime.now(UTC):%Y%m%d-%H%M%S}.txt"
            open_url(self._url).write(name, text.encode())
            told += f"; the stacks of all workers are in {self._url}/{name}"
        print(f"Hang: {told}.", flush=True)  # noqa: T201 - a job's
        for rank in silent:
            ray.kill(found[rank].actor)


def _ask(workers: list[Worker], seconds: float, question: Callable[..., Any], *given: Any) -> Any:
    """Return each worker's answer, or why it gives none in this time."""
    asked: list[Any] = [worker.execute_async(question, *given) for worker in workers]
    until, found = time.monotonic() + seconds, list[Any]()
    for each in asked:
        try:
            found.append(ray.get(each, timeout=max(0.0, until - time.monotonic())))
        except Exception as error:  # it is late, or has ended
            found.append(f"no answer: {reason(error)}")
    return found
