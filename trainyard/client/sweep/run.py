"""Runs the points of a sweep on a stack, and resumes an earlier start."""

import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainyard.access import parallel
from trainyard.access.terminal import clean
from trainyard.client import feasibility, job_log, jobs, preflight, submission
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError, UnreachedError
from trainyard.client.job_server import Job, JobServer
from trainyard.client.log_writer import LogWriter
from trainyard.client.outputs import StackOutputs
from trainyard.client.sweep import collect, report
from trainyard.client.sweep.point import Point, PointOutcome
from trainyard.client.sweep.queueing import LetGoError, Queue
from trainyard.client.sweep.records import Record, Records
from trainyard.client.sweep.upload import Upload

COLLECTED_AT_ONCE = 8
RESEND_S = 2.0


class Prefixed(io.StringIO):
    """A stream that puts a prefix before each line; several threads may have one each."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def write(self, text: str) -> int:
        """Writes whole lines at a time."""
        sys.stdout.write("".join(f"{self._prefix} {line}\n" for line in text.splitlines()))
        return len(text)

    def flush(self) -> None:
        """Flushes the standard output."""
        sys.stdout.flush()


@dataclass
class Sweep:
    """The points of one start."""

    points: Sequence[Point]
    records: Records
    outputs: StackOutputs
    sent: Upload  # the common part of all jobs
    as_tasks: bool  # one job for all of them
    outcomes: dict[int, PointOutcome] = field(default_factory=dict)  # by the points' numbers

    def run(self) -> list[PointOutcome]:
        """Runs the points that are not done; returns how each point ended, in their order.

        Raises:
            ClientError: nothing can be sent, or no result can be kept.
            LetGoError: the user pressed Ctrl-C.
        """
        server = jobs.connect(self.outputs)
        collect.results(self.outputs, None)  # a store that cannot be opened takes none
        todo, flying = self._split(server)
        if todo:
            for file in {point.runtime_env for point in todo}:
                env = self.sent.environment(self.records.name, file)
                preflight.run(env, "", self.outputs)  # one of its own jobs may still run
                if "conda" in env:
                    submission.check_conda(server, self.outputs)
        if self.as_tasks:
            self._run_tasks(server, todo, flying)
        else:
            queue = Queue(
                self.outputs.nodes,
                self._send,
                lambda point, job_id: self._follow(server, point, job_id),
                self._end,
            )
            queue.run(todo, flying)
        return [self.outcomes[point.number] for point in self.points]

    def _split(self, server: JobServer) -> tuple[list[Point], list[tuple[Point, str]]]:
        """Sorts the points out: done, refused, running, to be sent."""
        known = {job.submission_id: job for job in server.jobs()}
        todo: list[Point] = []
        flying: list[tuple[Point, str]] = []
        for point in self.points:
            record = self.records.get(point.identity)
            if record is None or record.error:
                if self._fits(point):
                    todo.append(point)
                continue
            job = known.get(record.job)
            if record.done:
                self.outcomes[point.number] = PointOutcome(job=record.job, value=record.value)
            elif job is not None and not job.status.ended:
                flying.append((point, record.job))
            else:
                found = collect.collect(point, record, job, self.records, self.outputs)
                if found is None or found.error:
                    todo.append(point)
                else:
                    self.outcomes[point.number] = found
        if done := len(self.outcomes) - sum(bool(o.error) for o in self.outcomes.values()):
            say(f"points: {done} of {len(self.points)} are done already")
        return todo, flying

    def _note(self, point: Point, job_id: str) -> None:
        """Notes a point before it is sent: a job without a note would run twice."""
        self.records.put(point.identity, self._record(point, job_id))

    def _record(self, point: Point, job_id: str, error: str = "") -> Record:
        return Record(
            sweep=self.records.name,
            job=job_id,
            number=point.number,
            folder=point.folder,
            overrides=point.overrides,
            error=error,
        )

    def _fits(self, point: Point) -> bool:
        why = feasibility.shortfall([point.bundle], self.outputs.nodes)
        if why is None:
            return True
        remedy = feasibility.growth([point.bundle], self.outputs)
        self._ended(point, PointOutcome(error=f"{why}: ask for less, or {remedy}"))
        return False

    def _send(self, point: Point) -> str:
        job_id = submission.new_job_id()
        self._note(point, job_id)
        try:
            self._send_patiently(point, job_id)
        except UnreachedError:
            raise  # the job may be there: the next start looks for it
        except ClientError:
            self.records.forget(point.identity)
            raise
        return job_id

    def _send_patiently(self, point: Point, job_id: str) -> None:
        """Sends a point, also while the job server is lost for a moment.

        Raises:
            UnreachedError: it stays lost.
            ClientError: the server refused the point.
        """
        deadline = time.monotonic() + jobs.patience(self.outputs)
        while True:
            try:
                self.sent.send_point(point, job_id)
            except UnreachedError:
                if time.monotonic() > deadline:
                    raise
            else:
                return
            if self._has_arrived(job_id, deadline):
                return

    def _has_arrived(self, job_id: str, deadline: float) -> bool:
        """Whether a job was taken although the answer was lost: a second one would be refused."""
        while True:
            time.sleep(RESEND_S)
            try:
                return any(j.submission_id == job_id for j in jobs.connect(self.outputs).jobs())
            except ClientError as error:
                if time.monotonic() > deadline:
                    raise UnreachedError(str(error)) from None

    def _follow(self, server: JobServer, point: Point, job_id: str) -> Job:
        return self._log(server, job_id, LogWriter(Prefixed(f"[{point.number}]")))

    def _log(self, server: JobServer, job_id: str, writer: LogWriter) -> Job:
        try:
            return job_log.follow(
                server, job_id, writer.write, lost_after_s=jobs.patience(self.outputs)
            )
        finally:
            writer.close()

    def _end(self, point: Point, job_id: str, job: Job | str) -> None:
        if isinstance(job, str):
            self._ended(point, PointOutcome(job=job_id, error=job))
            return
        self._ended(point, self._found(point, job_id, job))

    def _found(self, point: Point, job_id: str, job: Job) -> PointOutcome:
        record = self.records.get(point.identity) or self._record(point, job_id)
        found = collect.collect(point, record, job, self.records, self.outputs)
        return found or PointOutcome(job=job_id, error="left no result")

    def _ended(self, point: Point, outcome: PointOutcome) -> None:
        self.outcomes[point.number] = outcome
        if not outcome.job:
            self.records.put(point.identity, self._record(point, "", outcome.error))
        if outcome.note:
            warn(f"{point.label}: {outcome.note}")
        if outcome.error:
            warn(f"{point.label}: failed: {outcome.error}")
        else:
            say(f"{point.label}: done, {clean(outcome.value)[:80]}")

    def _run_tasks(
        self, server: JobServer, todo: Sequence[Point], flying: Sequence[tuple[Point, str]]
    ) -> None:
        groups: dict[str, list[Point]] = {}
        for point, job_id in flying:
            groups.setdefault(job_id, []).append(point)
        if todo:
            job_id = submission.new_job_id()
            groups[job_id] = list(todo)
            for point in todo:
                self._note(point, job_id)
            self.sent.send_tasks(todo, job_id)
            report.prepare()
            say(f"points: {len(todo)} tasks of job {job_id}, as many at once as there is room for")
        for job_id, points in groups.items():
            try:
                job = self._log(server, job_id, LogWriter())
            except KeyboardInterrupt:
                raise LetGoError([job_id], 0) from None
            for first in range(0, len(points), COLLECTED_AT_ONCE):
                batch = points[first : first + COLLECTED_AT_ONCE]
                found = [parallel.start(self._found, point, job_id, job) for point in batch]
                for point, outcome in zip(batch, found, strict=True):
                    self._ended(point, outcome.result())
