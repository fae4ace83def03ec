"""A run seen from outside during a drill: its job, workers, log and epochs."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from trainyard.access import parallel, typed
from trainyard.client.console import warn
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, JobServer
from trainyard.client.state import TRAIN_WORKER, Actor, ClusterState
from trainyard.json_values import number
from trainyard.report import progress
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

POLL_S = 0.2
ANSWER_S = 10  # a server that hangs does not answer
TELL_S = 5  # between two lines about the run's progress
LOST_AFTER_S = 120  # after so long a job server will not answer again

T = TypeVar("T")


class RunWatch:
    """The known state of a run; `look` updates it."""

    def __init__(
        self, server: JobServer, state: ClusterState, store: Store, run: str, job: Job
    ) -> None:
        self._server, self._state, self._store, self.run = server, state, store, run
        self._log = _LogFacts()
        self._answered = time.monotonic()
        self._told = (0, time.monotonic())
        # The epochs in the store, oldest first; none while the store does not answer.
        self.records: list[dict[str, Any]] = []
        self.workers: dict[str, Actor] = {}  # Ray Train's that are not dead, by their actors' ids
        self.answers = True  # whether the job server answered the last time
        self.trained = 0  # epochs, stored or not
        self.trained_at = time.time()  # when the last of them was seen
        self.job = job  # as the job server last knew it

    def follow(self, job: Job) -> None:
        """Goes on with another job of the same run."""
        self.job, self._log, self.workers = job, _LogFacts(), {}

    def look(self, *, store: bool = True) -> None:
        """Asks the job server, and the store unless it is known not to answer."""
        job_id = self.job.submission_id
        try:
            self.job = _ask(self._server.job, job_id)
            actors = self._state.actors()
            self._log.add(_ask(lambda: "".join(self._server.log_pieces(job_id))))
        except (DashboardError, TimeoutError):
            self.answers = False
        else:
            self.answers, self._answered = True, time.monotonic()
            self.workers = {
                actor.id: actor
                for actor in actors
                if actor.kind == TRAIN_WORKER and actor.job == self.job.job_id
            }
        if store:
            with suppress(ClientError):
                self.records = self._read()
        trained = max(len(self.records), self._log.epochs)
        if trained > self.trained:
            self.trained, self.trained_at = trained, time.time()

    def until(self, what: str, check: Callable[[], Any], deadline_s: float | None = None) -> float:
        """Looks until a check holds; returns that time in seconds since 1970.

        Without a deadline it waits until the job has ended; `what` is awaited.

        Raises:
            ClientError: the time is up, or the job has ended or is out of reach.
        """
        begun = time.monotonic()
        while True:
            self.look()
            self._tell()
            if check():
                return time.time()
            waited = time.monotonic() - begun
            if deadline_s is not None:
                if waited > deadline_s:
                    raise ClientError(
                        f"{what} did not come within {deadline_s:g} s: look at the stack's nodes "
                        f"(train info), then submit run {self.run!r} again to go on with it"
                    )
            elif self.answers and self.job.status.ended:
                raise ClientError(
                    f"job {self.job.submission_id} has ended ({self.job.status}) before {what}: "
                    f"`train logs {typed.argument(self.job.submission_id)}`"
                )
            elif time.monotonic() - self._answered > LOST_AFTER_S:
                raise ClientError(
                    f"the job server did not answer for {LOST_AFTER_S} s while the drill waited "
                    f"for {what}: run `make up`, then submit run {self.run!r} again"
                )
            time.sleep(POLL_S)

    @property
    def restored(self) -> list[tuple[str, float]]:
        """Each start from a checkpoint in the job's log: its address and the epochs in it."""
        return [
            (path, len(self.records) if epochs is None else epochs + self._part(batches))
            for path, epochs, batches in self._log.restored
        ]

    @property
    def reached(self) -> list[float]:
        """The epochs that were trained before each of these starts, according to the log."""
        return [epochs + self._part(steps) for epochs, steps in self._log.reached]

    @property
    def steps_an_epoch(self) -> int | None:
        """Steps of an epoch, when the job's log has them."""
        return self._log.steps_an_epoch

    def part_of_an_epoch(self, at: float) -> float:
        """Return the part of the current epoch that was trained at a time, 0 to 1.

        From the log's steps where it has them, else from the time since the last epoch was seen.
        """
        if self._log.steps_an_epoch:
            # If the log lags behind the store, its steps are of an epoch that is stored already.
            behind = self._log.epochs < self.trained
            return 0.0 if behind else self._part(self._log.steps)
        times = [60 * (number(record.get("minutes")) or 0) for record in self.records[-2:]]
        took = times[-1] - times[0] if len(times) == 2 else sum(times)
        return min(1.0, max(0.0, at - self.trained_at) / took) if took > 0 else 0.0

    def _part(self, steps: int) -> float:
        return steps / self._log.steps_an_epoch if self._log.steps_an_epoch else 0.0

    def _tell(self) -> None:
        now = time.monotonic()
        if self._told[0] != len(self.records) and now - self._told[1] > TELL_S:
            self._told = len(self.records), now
            warn(f"run {self.run}: {len(self.records)} epochs are stored")

    def _read(self) -> list[dict[str, Any]]:
        return run_folder.whole_records(self._store.get(f"{self.run}/{run_folder.METRICS}"))


class _LogFacts:
    """The facts from a job's log so far."""

    def __init__(self) -> None:
        self._length = 0
        self.epochs = 0
        self.steps = 0  # since the last epoch's end, or since it was restored
        self.steps_an_epoch: int | None = None
        self.restored: list[tuple[str, int | None, int]] = []
        self.reached: list[tuple[int, int]] = []  # epochs and steps, before each of them

    def add(self, text: str) -> None:
        """Takes the whole log; reads its new complete lines."""
        end = text.rfind("\n") + 1
        lines, self._length = text[self._length : end].splitlines(), max(end, self._length)
        for line in lines:
            found = progress.parse(line)
            match found.record if found else None:
                case progress.Epoch(number):
                    self.epochs, self.steps = max(self.epochs, number + 1), 0
                case progress.Batches(done=done, total=int(total)):
                    self.steps, self.steps_an_epoch = done, total
                case progress.Restored(checkpoint=checkpoint, epochs=epochs, batches=batches):
                    self.restored.append((checkpoint, epochs, batches))
                    self.reached.append((self.epochs, self.steps))
                    self.epochs, self.steps = max(self.epochs, epochs or 0), batches


def _ask(request: Callable[..., T], *arguments: object) -> T:
    # A reply may also come in small pieces without an end.
    return parallel.start(request, *arguments).result(ANSWER_S)
