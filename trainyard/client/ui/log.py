"""Jobs' logs for the page's readers, line by line in JSON, until the job has ended.

Readers of a log share one follower, which keeps the end of the log. A reader that is too slow, or
does not read, misses a part; nothing waits for it.
"""

import asyncio
import io
import json
from collections import deque
from collections.abc import AsyncIterator

from trainyard.access import parallel
from trainyard.access.terminal import COLOUR
from trainyard.client import job_log
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, JobServer
from trainyard.client.log_writer import LogWriter
from trainyard.client.ui.answers import message
from trainyard.client.ui.stacks import Stacks

MOST_CHARACTERS = 1_000_000  # of a log that are kept; `train logs` prints all
PIECE = 2**14  # characters that are sent at once
LONGEST_LINE = 2**17  # characters; a longer line is broken
MOST_LOGS = 50  # that are followed at once
MOST_READERS = 300


def line(kind: str, value: object) -> str:
    """Return a line of an answer: a JSON list of two."""
    return json.dumps([kind, value]) + "\n"


class Logs:
    """The logs that are read now, by stack and job."""

    def __init__(self, stacks: Stacks) -> None:
        """Follows nothing yet."""
        self._stacks = stacks
        self._open: dict[tuple[str, str], _Log] = {}

    async def read(self, stack: str, job_id: str) -> AsyncIterator[str]:
        """Yield `log` for each piece, `cut` where some are left out, `end` with the job's status.

        An error is a last `fault`.
        """
        key = stack, job_id
        readers = sum(log.readers for log in self._open.values())
        if readers >= MOST_READERS or (key not in self._open and len(self._open) >= MOST_LOGS):
            yield line("fault", f"too many logs are shown now: run train logs -f {job_id}")
            return
        log = self._open.get(key) or _Log(self._stacks, stack, job_id)
        self._open[key] = log
        log.readers += 1
        offset = 0
        try:
            while True:
                if offset < log.first:
                    offset = log.first
                    yield line("cut", f"a part is left out here: train logs {job_id} prints it")
                elif text := log.after(offset):
                    offset += len(text)
                    yield line("log", text)
                elif log.follower.done():
                    yield line("end", str(log.follower.result().status))
                    return
                else:
                    await log.grown.wait()
        except (ClientError, DashboardError) as error:
            yield line("fault", message(error, stack))
        finally:  # the browser has gone, or has all
            log.readers -= 1
            if not log.readers:
                log.follower.cancel()
                del self._open[key]


class _Log:
    """The end of a log, from the offset `first` on, in characters from the log's beginning.

    `follower` returns the job when it has ended; `grown` is set when there is more, and replaced.
    """

    def __init__(self, stacks: Stacks, stack: str, job_id: str) -> None:
        self.readers = 0
        self.first = self._end = 0
        self.grown = asyncio.Event()
        self._pieces: deque[str] = deque()
        self._in_line = 0  # characters of pieces since one with a line end
        self._text = io.StringIO()
        self._writer = LogWriter(self._text)  # draws no bars: it is not a terminal
        self.follower = asyncio.create_task(self._follow(stacks, stack, job_id))
        self.follower.add_done_callback(lambda _: self._wake())

    def after(self, offset: int) -> str:
        """Return the rest of the piece that has an offset; "" at the end."""
        begin = self.first
        for piece in self._pieces:
            if offset < begin + len(piece):
                return piece[offset - begin :]
            begin += len(piece)
        return ""

    async def _follow(self, stacks: Stacks, stack: str, job_id: str) -> Job:
        server = await asyncio.wrap_future(parallel.start(_server_of, stacks, stack, job_id))
        job = await job_log.following(server, job_id, self._write)
        self._writer.close()
        self._keep()
        return job

    def _write(self, piece: str) -> None:
        self._writer.write(piece)
        self._in_line = 0 if "\n" in piece else self._in_line + len(piece)
        if self._in_line > LONGEST_LINE:  # the writer holds it until its end
            self._writer.write("\n")
            self._in_line = 0
        self._keep()

    def _keep(self) -> None:
        """Takes what the writer has written."""
        # Bars of other programs begin their line again, which a page cannot.
        text = COLOUR.sub("", self._text.getvalue()).replace("\r", "\n")
        self._text.seek(0)
        self._text.truncate()
        for begin in range(0, len(text), PIECE):
            piece = text[begin : begin + PIECE]
            if self._pieces and len(self._pieces[-1]) + len(piece) <= PIECE:
                self._pieces[-1] += piece
            else:
                self._pieces.append(piece)
        self._end += len(text)
        while self._end - self.first > MOST_CHARACTERS:
            self.first += len(self._pieces.popleft())
        self._wake()

    def _wake(self) -> None:
        self.grown.set()
        self.grown = asyncio.Event()


def _server_of(stacks: Stacks, name: str, job_id: str) -> JobServer:
    stack = stacks.get(name)
    if all(job.submission_id != job_id for job in stack.jobs()):
        raise ClientError(f"the cluster has no job {job_id[:80]!r}: `train list` shows the jobs")
    return stack.server()
