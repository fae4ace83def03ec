"""A job's log as server-sent events, which go on until the job has ended."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator

from trainyard.access.terminal import COLOUR
from trainyard.client import jobs
from trainyard.client.console import LogWriter
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job
from trainyard.client.ui.stacks import Stack

MOST_CHARACTERS = 1_000_000  # of what is sent at once; `train logs` prints all


def prepare(stack: Stack, job_id: str) -> AsyncIterator[str]:
    """Return the events of a job's log.

    Raises:
        ClientError: the stack is not reached, or has no such job.
    """
    if all(job.submission_id != job_id for job in stack.jobs()):
        raise ClientError(f"the cluster has no job {job_id[:80]!r}: `train list` shows the jobs")
    return _events(stack, job_id)


def event(kind: str, value: object) -> str:
    """Return an event of the stream; its data is JSON, which has no line ends."""
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


async def _events(stack: Stack, job_id: str) -> AsyncIterator[str]:
    """Yield `log` for each piece, and `end` with the job's status."""
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    text = io.StringIO()
    writer = LogWriter(text)  # draws no bars: it is not a terminal

    def write(piece: str) -> None:
        writer.write(piece)
        _send()

    def _send() -> None:
        # Bars of other programs begin their line again, which a page cannot.
        if found := COLOUR.sub("", text.getvalue()).replace("\r", "\n"):
            pieces.put_nowait(found)
            text.seek(0)
            text.truncate()

    async def follow() -> Job:
        try:
            job = await jobs.following(stack.server(), job_id, write)
            writer.close()
            _send()
            return job
        finally:
            pieces.put_nowait(None)

    task = asyncio.create_task(follow())
    try:
        while (piece := await pieces.get()) is not None:
            if len(piece) > MOST_CHARACTERS:
                yield event("cut", f"the beginning is left out: train logs {job_id} prints it")
            yield event("log", piece[-MOST_CHARACTERS:])
        yield event("end", str((await task).status))
    finally:
        task.cancel()  # the browser has gone
