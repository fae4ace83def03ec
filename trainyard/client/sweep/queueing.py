"""Sends points as jobs: as many at once as the cluster has room for, the rest in a queue here.

Ray's own queue would fail a job that waits for a quarter of an hour.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from trainyard.access import parallel
from trainyard.client import feasibility
from trainyard.client.console import say
from trainyard.client.errors import ClientError, UnreachedError
from trainyard.client.job_server import Job, Status
from trainyard.client.outputs import Node
from trainyard.client.sweep.point import Point

AHEAD = 2  # jobs beyond the room, which start as soon as others end
MOST = 64  # jobs at once; each is followed by a thread
LOOK_S = 1.0  # between two looks at Ctrl-C
NO_START = "failed to start within"  # in Ray's message about a job that waited for too long


class LetGoError(Exception):
    """Ctrl-C: the jobs go on."""

    def __init__(self, jobs: Sequence[str], waiting: int) -> None:
        super().__init__(f"{len(jobs)} jobs go on")
        self.jobs = jobs  # ids of those that were sent
        self.waiting = waiting  # number of points that were not


class Queue:
    """Runs points as jobs of their own.

    Args:
        nodes: the declared nodes, whose resources count.
        send: sends a point, and returns its job's id.
        follow: writes a job's log until its end.
        ended: is called with each point and its job, in the main thread.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        send: Callable[[Point], str],
        follow: Callable[[Point, str], Job],
        ended: Callable[[Point, str, Job | str], None],
    ) -> None:
        self._nodes, self._send, self._follow, self._ended = nodes, send, follow, ended
        self._flying: dict[Future[Job], tuple[Point, str]] = {}
        self._waiting: deque[Point] = deque()
        self._said = ""

    def run(self, points: Sequence[Point], sent: Sequence[tuple[Point, str]]) -> None:
        """Runs points to their end, also points that an earlier start has sent as jobs.

        Raises:
            LetGoError: the user pressed Ctrl-C.
            ClientError: a result cannot be taken, or no point sent; the jobs go on.
        """
        self._waiting.extend(points)
        try:
            for point, job_id in sent:
                self._watch(point, job_id)
            while self._waiting or self._flying:
                self._fill()
                done, _ = wait(self._flying, LOOK_S, FIRST_COMPLETED)
                for future in done:
                    self._end(future)
        except KeyboardInterrupt:
            jobs = [job_id for _, job_id in self._flying.values()]
            raise LetGoError(jobs, len(self._waiting)) from None

    def _fill(self) -> None:
        while self._waiting and self._has_room(self._waiting[0]):
            point = self._waiting.popleft()
            try:
                job_id = self._send(point)
            except UnreachedError:
                raise  # sending the next points would fail too
            except ClientError as error:
                self._ended(point, "", str(error))
                continue
            say(f"{point.label}: job {job_id}")
            self._watch(point, job_id)
        self._tell()

    def _has_room(self, point: Point) -> bool:
        flying = [other.bundle for other, _ in self._flying.values()]
        if len(flying) >= MOST:
            return False
        placed = flying[: max(0, len(flying) - AHEAD)]
        return feasibility.shortfall([*placed, point.bundle], self._nodes) is None

    def _watch(self, point: Point, job_id: str) -> None:
        self._flying[parallel.start(self._follow, point, job_id)] = point, job_id

    def _end(self, future: Future[Job]) -> None:
        point, job_id = self._flying.pop(future)
        try:
            job = future.result()
        except ClientError as error:  # the job server is lost
            self._ended(point, job_id, str(error))
            return
        if job.status is Status.FAILED and NO_START in job.message:
            say(f"{point.label}: others have the cluster; queued again")
            self._waiting.appendleft(point)
            return
        self._ended(point, job_id, job)

    def _tell(self) -> None:
        text = f"points: {len(self._flying)} sent"
        if self._waiting:
            text += f", {len(self._waiting)} in the queue until the cluster has room"
        if self._waiting and text != self._said:
            say(text)
        self._said = text
