"""The log of a job as it grows, until the job's end."""

import asyncio
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainyard import serving
from trainyard.access import parallel, typed
from trainyard.client import history
from trainyard.client.dashboard import DashboardError, RefusedError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, JobServer
from trainyard.client.jobs import ATTEMPT, LOST_AFTER_S, patience
from trainyard.client.log_writer import LogWriter
from trainyard.client.outputs import StackOutputs
from trainyard.client.store import open_store
from trainyard.store.objects import Listed, retry

FIRST_LINE_POLL_S = 0.2
POLL_S = 0.25
RECONNECT_S = 1
REPLICAS_POLL_S = 2.0  # they store new lines every ten seconds
WAITING_NOTICE_S = 5


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


def follow_service(run: str, outputs: StackOutputs, since: float, writer: LogWriter) -> bool:
    """Writes what a service's replicas print until it is withdrawn; False for another run."""
    service = run.removeprefix(prefix := serving.run_of(""))
    if not run.startswith(prefix) or not outputs.storage_url or outputs.keeps_files_away:
        return False
    place, seen = open_store(outputs), dict[str, tuple[Listed, int]]()

    def look() -> bool:
        for piece in history.replica_logs(place, run, 0 if seen else since, seen):
            writer.write(piece)
        writer.close()
        return service in place.listed(serving.SERVICES)

    found = before = served = service in place.listed(serving.SERVICES)
    while before:  # once more after its end, for the last lines
        before, served = served, retry(look, patience(outputs))
        time.sleep(REPLICAS_POLL_S)
    return found


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


async def following(
    server: JobServer,
    job_id: str,
    write: Callable[[str], None],
    notice: Callable[[Job], None] = lambda _: None,
    lost_after_s: float = LOST_AFTER_S,
) -> Job:
    """Do what `follow` does, in a loop that has other work too."""
    log = _Log(write)
    tail = asyncio.create_task(_tail(server, job_id, log))
    started = answered = time.monotonic()
    noticed, attempt = False, None
    try:
        while True:
            try:
                job: Job = await _aside(server.job, job_id)
                ended = job.status.ended
                number = job.metadata.get(ATTEMPT)
                if number != attempt and attempt is not None and log.length:
                    tail.cancel()
                    log = _Log(write)  # a queue has started the job again, with a log of its own
                    tail = asyncio.create_task(_tail(server, job_id, log))
                attempt = number
                if ended or not log.length:
                    with suppress(RefusedError):  # its node is gone; its result is known anyway
                        pieces, offset = server.log_pieces(job_id), 0
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
    for stream in itertools.cycle((server.tail, server.raw_tail)):
        # One ends at bytes that are not UTF-8, the other serves few.
        offset = 0
        with suppress(DashboardError, OSError, TimeoutError):
            async for text in stream(job_id):
                offset = log.feed(offset, text)
        # Cut: the stream begins again, and the log knows what it has passed on.
        await asyncio.sleep(RECONNECT_S)
