"""Jobs of a cluster: reach the job server, find a job, follow its log."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from trainyard.access import parallel, typed
from trainyard.client import health
from trainyard.client.dashboard import (
    DashboardError,
    RefusedError,
    UnreachableError,
    UnreadableError,
)
from trainyard.client.errors import ClientError, guess
from trainyard.client.job_server import Job, JobServer
from trainyard.client.outputs import StackOutputs

SERVER_TIMEOUT_S = 3
FIRST_LINE_POLL_S = 0.2
POLL_S = 0.25
RECONNECT_S = 1
LOST_AFTER_S = 30
LOST_THROUGH_SSH_S = 300  # a laptop changes its network, a host restarts its sshd
STOP_DEADLINE_S = 60
WAITING_NOTICE_S = 5

VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.")
FIRST_WITH_TOKENS = (2, 54)  # of Ray; an older one ignores RAY_AUTH_MODE=token
MOST_NAMED = 10  # jobs in a message


def patience(outputs: StackOutputs) -> float:
    """Return for how many seconds a stack's job server may be out of reach."""
    return LOST_THROUGH_SSH_S if outputs.away else LOST_AFTER_S


def connect(outputs: StackOutputs) -> JobServer:
    """The stack's job server; ClientError if the server does not answer, or refuses the token."""
    where = f"{outputs.dashboard_url} (stack {outputs.stack!r})"
    server = JobServer(outputs)
    try:
        said = server.version(SERVER_TIMEOUT_S)
    except RefusedError as error:
        if error.status in (401, 403):
            if outputs.attached:
                raise ClientError(
                    f"{where} {'refuses the' if outputs.ray_token else 'asks for a'} token "
                    f"({error.status}): give the cluster's own with "
                    f"`train attach {outputs.dashboard_url} --token-file FILE -s {outputs.stack}`"
                ) from None
            raise ClientError(
                f"the job server at {where} refuses the token of the output rayToken "
                f"({error.status}): the outputs are older than the cluster, or another stack's; "
                "read them again without --outputs, or write the file again"
            ) from None
        raise ClientError(
            f"{where} answers {error.status} to a request for Ray's version: "
            "it is not a Ray dashboard, or it is still starting; try again, then look at its log"
        ) from None
    except UnreadableError:
        said = None
    except UnreachableError as error:
        end = outputs.expires_at
        is_over = end is not None and end < datetime.now(UTC)
        ended = f"it ended itself at {end:%Y-%m-%d %H:%M} UTC; run `make up`" if is_over else ""
        raise ClientError(
            f"no job server answers at {where} ({error}): {ended or health.remedy(outputs)}, or "
            "name the right stack with --stack"
        ) from None
    _check_version(said, where)
    return server


def _check_version(said: object, where: str) -> None:
    """Refuses a Ray that ignores RAY_AUTH_MODE: anyone who reaches it can run code."""
    version = str(said.get("ray_version", "")) if isinstance(said, dict) else ""
    found = VERSION.match(version)
    if found is None:
        raise ClientError(
            f"{where} does not tell its version of Ray: it is not a Ray dashboard; look at what "
            "listens there"
        )
    if (int(found[1]), int(found[2])) < FIRST_WITH_TOKENS:
        least = ".".join(map(str, FIRST_WITH_TOKENS))
        raise ClientError(
            f"the cluster at {where} is Ray {version[:40]}, which asks for no token (Ray does "
            f"from {least} on): end it, and start one of this client's version (a stack: by "
            "`make up`)"
        )


def submissions(server: JobServer) -> list[Job]:
    """Submitted jobs, newest first."""
    return newest_first(server.jobs())


def newest_first(found: Iterable[Job]) -> list[Job]:
    """Return the submitted ones of all jobs, newest first."""
    return sorted((job for job in found if job.submitted), key=lambda job: -job.start_time)


def resolve(server: JobServer, wanted: str) -> Job:
    """Finds a job by its submission id, or by its run's name: the active one, else the newest.

    Raises:
        ClientError: no such job or run, or several active jobs of the run.
    """
    found = submissions(server)
    for job in found:
        if job.submission_id == wanted:
            return job
    of_run = [job for job in found if job.run == wanted]
    active = [job for job in of_run if not job.status.ended]
    if len(active) > 1:
        ids = ", ".join(job.submission_id for job in active[:MOST_NAMED])
        raise ClientError(
            f"run {wanted!r} has {len(active)} active jobs: give the id of one instead: {ids}"
        )
    for job in active or of_run:
        return job
    near = guess(wanted, (name for job in found for name in (job.submission_id, job.run) if name))
    raise ClientError(
        f"no job and no run of this cluster is called {wanted[:80]!r}: {near}"
        "`train list` shows the jobs"
    )


def read_log(server: JobServer, job_id: str) -> str:
    """Return a job's log so far; ClientError if the server refuses it."""
    try:
        return server.log(job_id)
    except RefusedError as error:
        said = (error.text.strip().splitlines() or ["no reason given"])[-1]
        raise ClientError(
            f"the log of job {job_id} cannot be read ({error}: {said[:200]}): it is lost if the "
            "node that it ran on is gone; "
            f"`train status {typed.argument(job_id)}` tells how it ended"
        ) from None


def follow(
    server: JobServer,
    job_id: str,
    write: Callable[[str], None],
    notice: Callable[[Job], None] = lambda _: None,
    lost_after_s: float = LOST_AFTER_S,
) -> Job:
    """Writes a job's log as it grows, each character once, until the job has ended.

    Ray's own stream looks once a second, and again before its end; so the first line and the
    rest after the job's end are asked for directly.

    Args:
        server: that has the job.
        job_id: submission id.
        write: takes the next piece of the log.
        notice: called once when the job still waits after some seconds.
        lost_after_s: how long the server may be out of reach.

    Returns:
        The job in its final state.

    Raises:
        ClientError: the server did not answer for so long; the job goes on.
    """
    return asyncio.run(following(server, job_id, write, notice, lost_after_s))


def wait_for_end(
    server: JobServer, job_id: str, within_s: float = STOP_DEADLINE_S, told: str = "to stop"
) -> Job:
    """Waits until a job has ended that was told to stop, or to do little.

    Raises:
        ClientError: it has not ended in time.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with suppress(UnreachableError, UnreadableError):  # cut
            job = server.job(job_id)
            if job.status.ended:
                return job
        time.sleep(FIRST_LINE_POLL_S)
    raise ClientError(
        f"job {job_id} was told {told} and has not ended within {within_s:g} s: "
        f"look at it with `train status {typed.argument(job_id)}`"
    )


class _Log:
    """Takes the same text from several readers and passes each character on once."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.length = 0

    def feed(self, offset: int, text: str) -> int:
        """Takes a piece that begins at an offset; returns the offset after it."""
        end = offset + len(text)
        if end > self.length:
            self._write(text[self.length - offset :])
            self.length = end
        return end


def _whole_log(server: JobServer, job_id: str) -> Iterator[str]:
    yield server.log(job_id)


async def following(
    server: JobServer,
    job_id: str,
    write: Callable[[str], None],
    notice: Callable[[Job], None] = lambda _: None,
    lost_after_s: float = LOST_AFTER_S,
    read: Callable[[JobServer, str], Iterator[str]] = _whole_log,
) -> Job:
    """Do what `follow` does, in a loop that has other work too; `read` returns the log so far."""
    log = _Log(write)
    tail = asyncio.create_task(_tail(server, job_id, log))
    started = answered = time.monotonic()
    noticed = False
    try:
        while True:
            try:
                job: Job = await _aside(server.job, job_id)
                ended = job.status.ended
                if ended or not log.length:
                    with suppress(RefusedError):  # its node is gone; its result is known anyway
                        pieces, offset = read(server, job_id), 0
                        while (piece := await _aside(next, pieces, None)) is not None:
                            offset = log.feed(offset, piece)
                answered = time.monotonic()
                if ended:
                    return job
            except (DashboardError, TimeoutError) as error:
                if time.monotonic() - answered > lost_after_s:
                    raise ClientError(
                        f"lost the job server for {lost_after_s:g} s "
                        f"({str(error) or 'no answer'}); the job goes on "
                        f"as long as its cluster: `train logs -f {typed.argument(job_id)}`"
                    ) from None
            else:
                if not noticed and not log.length and answered - started > WAITING_NOTICE_S:
                    noticed = True
                    notice(job)
            await asyncio.sleep(POLL_S if log.length else FIRST_LINE_POLL_S)
    finally:
        tail.cancel()


async def _aside(request: Callable[..., Any], *arguments: object) -> Any:
    # Not the loop's executor: it would wait for a request that hangs when the user detaches.
    work = asyncio.wrap_future(parallel.start(request, *arguments))
    return await asyncio.wait_for(work, LOST_AFTER_S)


async def _tail(server: JobServer, job_id: str, log: _Log) -> None:
    raw = False
    while True:
        offset = 0
        try:
            job = await _aside(server.job, job_id) if raw else None
            async for text in server.raw_tail(job) if job else server.tail(job_id):
                offset = log.feed(offset, text)
        except (DashboardError, OSError, TimeoutError):
            pass  # cut: the stream begins again, and the log knows what it has passed on
        raw = not raw  # one ends at bytes that are not UTF-8, the other serves few
        await asyncio.sleep(RECONNECT_S)
