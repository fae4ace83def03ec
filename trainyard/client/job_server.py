"""Ray's job server: the jobs that it knows, their logs, and how to stop them.

It is the REST API of Ray's jobs, without Ray's own client, which needs all of Ray.
"""

import codecs
import io
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from trainyard.access.bounded import MIB
from trainyard.client import fields
from trainyard.client.dashboard import (
    Dashboard,
    RefusedError,
    TooLongError,
    UnreachableError,
    UnreadableError,
)
from trainyard.client.outputs import StackOutputs

RAW_LOG = "/api/v0/logs/file"
RAW_TAIL = "/api/v0/logs/stream"
NO_NODE = "has no driver node id"  # in Ray's refusal: the job waits for one
NO_FILE = re.compile(r"is not found|doesn't exist")  # likewise: the file, or its node
RAW_INTERVAL_S = 0.25  # between two looks of Ray at a log's end
LOG_MOST_MIB = 512  # of a log that is read as a whole
LOG_TIMEOUT_S = 30  # between two pieces of a log that is read to its present end


class Status(StrEnum):
    """The status of a job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    UNREADABLE = fields.UNREADABLE  # the server's record of the job; it may run

    @property
    def ended(self) -> bool:
        """Whether it is final."""
        return self in (Status.STOPPED, Status.SUCCEEDED, Status.FAILED)


ACTIVE = (Status.PENDING, Status.RUNNING)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job; texts are empty while the server does not know them."""

    status: Status
    submitted: bool = True  # False for a program that uses the cluster without a submission
    entrypoint: str = ""
    submission_id: str = ""  # "" for such a program
    job_id: str = ""  # Ray's own, once its driver runs
    message: str = ""
    start_time: int = 0  # in milliseconds since 1970; 0 before
    end_time: int = 0  # likewise
    metadata: dict[str, str] = field(default_factory=dict)
    runtime_env: dict[str, Any] = field(default_factory=dict)
    node_id: str = ""  # of the node that its driver runs on

    @property
    def run(self) -> str:
        """The name of its run; "" for a job of another client."""
        return self.metadata.get("run", "")

    @property
    def user(self) -> str:
        """The user who submitted it; "" for a job of another client."""
        return self.metadata.get("user", "")

    @property
    def seconds(self) -> int:
        """How long it has run, or ran; 0 if the head's clock is ahead of this machine's."""
        end = self.end_time or time.time() * 1000
        return max(0, round((end - (self.start_time or end)) / 1000))

    @property
    def label(self) -> str:
        """Its name in messages: its id, with its run and user as far as they are known."""
        named = ", ".join(filter(None, [self.run, self.user and f"of {self.user}"]))
        return (self.submission_id or self.job_id) + (f" ({named})" if named else "")


class JobServer:
    """The job server of a stack; every method may raise a DashboardError."""

    def __init__(self, outputs: StackOutputs) -> None:
        self._dashboard = Dashboard(outputs)

    def version(self, timeout_s: float) -> Any:
        """Return the server's answer about its versions."""
        return self._dashboard.get("/api/version", timeout_s)

    def jobs(self) -> list[Job]:
        """All jobs, submitted ones and others; one that cannot be read has that status."""
        try:
            return fields.decoded(self._dashboard.get("/api/jobs/"), _job, _unreadable)
        except fields.FieldError as error:
            raise UnreadableError(f"no list of jobs: {error}") from None

    def job(self, job_id: str) -> Job:
        """One job, by its submission id."""
        found = self._dashboard.get(_path(job_id))
        try:
            return _job(found)
        except fields.FAULTS as error:
            raise UnreadableError(f"no job: {fields.reason(error)}") from None

    def queue(self) -> list[dict[str, Any]]:
        """What runs and waits in a queue before the head, as it says it; RefusedError without."""
        try:
            return fields.typed(self._dashboard.get("/api/queue"), "jobs", list)
        except fields.FieldError as error:
            raise UnreadableError(f"no queue: {error}") from None

    def raw_log(self, job_id: str, most_mib: int = LOG_MOST_MIB) -> bytes:
        """Return a job's log so far, as it was written."""
        return _bounded(self._raw_pieces(job_id), f"the log of job {job_id}", most_mib)

    def file(self, node_id: str, name: str, most_mib: int) -> bytes | None:
        """Return a file in a node's folder of logs; None if it is not there, or its node."""
        query = {"node_id": node_id, "filename": name, "lines": "-1"}
        pieces = self._dashboard.stream(RAW_LOG, LOG_TIMEOUT_S, **query)
        try:
            return _bounded(pieces, name, most_mib)
        except RefusedError as error:
            if NO_FILE.search(error.text):
                return None
            raise

    def log_pieces(self, job_id: str) -> Iterator[str]:
        """Yield a job's log so far, of any length."""
        decoder = _text_decoder()
        for piece in self._raw_pieces(job_id):
            yield decoder.decode(piece)

    def _raw_pieces(self, job_id: str) -> Iterator[bytes]:
        try:
            yield from self._dashboard.stream(RAW_LOG, LOG_TIMEOUT_S, **_log_query(job_id))
        except RefusedError as error:
            if NO_NODE not in error.text:  # else it has no log yet
                raise

    def stop(self, job_id: str) -> None:
        """Asks a job to end; it is killed some seconds later."""
        self._dashboard.post(f"{_path(job_id)}/stop")

    async def tail(self, job_id: str) -> AsyncIterator[str]:
        """Yield the pieces of a job's log as they come, from its beginning.

        Ray ends it at a byte that is not UTF-8, and at a line of 4 MiB.
        """
        # A queue would go on with the log of the next attempt.
        url = f"{self._dashboard.url}{_path(job_id)}/logs/tail?attempt=one"
        async with self._session() as session, session.ws_connect(url) as stream:
            async for message in stream:
                if message.type == message.type.TEXT:
                    yield message.data

    async def raw_tail(self, job_id: str) -> AsyncIterator[str]:
        """Yield a log of any bytes; the dashboard serves some hundred of these at a time."""
        decoder = _text_decoder()
        url = f"{self._dashboard.url}{RAW_TAIL}"
        query = _log_query(job_id) | {"interval": str(RAW_INTERVAL_S)}
        async with (
            self._session() as session,
            session.get(url, params=query, allow_redirects=False, timeout=None) as reply,
        ):
            if reply.status != HTTPStatus.OK:
                raise RefusedError(reply.status, await reply.text(errors="replace"))
            async for piece in reply.content.iter_any():
                yield decoder.decode(piece)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        """Open a session for a log that grows: urllib3 has no WebSockets."""
        import aiohttp  # noqa: PLC0415 - slow

        try:
            async with aiohttp.ClientSession(headers=self._dashboard.headers) as session:
                yield session
        except aiohttp.ClientError as error:
            raise UnreachableError(type(error).__name__) from None


def _bounded(pieces: Iterator[bytes], what: str, most_mib: int) -> bytes:
    found = bytearray()
    for piece in pieces:
        found += piece
        if len(found) > most_mib * MIB:
            raise TooLongError(f"{what} has more than {most_mib} MiB")
    return bytes(found)


def _log_query(job_id: str) -> dict[str, str]:
    # Ray finds the job's node, and refuses a request that names none.
    return {"node_id": "any", "submission_id": job_id, "lines": "-1"}


def _text_decoder() -> io.IncrementalNewlineDecoder:
    """Decodes the bytes of a log as Ray does, but replaces those that are not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return io.IncrementalNewlineDecoder(decoder, translate=True)


def _path(job_id: str) -> str:
    return f"/api/jobs/{quote(job_id, safe='')}"


def _job(value: Any) -> Job:
    """Decode the server's record of a job; raises one of `fields.FAULTS`."""
    metadata = fields.typed(value, "metadata", dict)
    for name in ("run", "user"):  # columns that are never cut
        fields.identifier({name: metadata.get(name)}, name)
    return Job(
        status=Status(fields.typed(value, "status", str)),
        submitted=fields.typed(value, "type", str) == "SUBMISSION",
        entrypoint=fields.typed(value, "entrypoint", str),
        submission_id=fields.identifier(value, "submission_id"),
        job_id=fields.identifier(value, "job_id"),
        message=fields.typed(value, "message", str),
        start_time=int(fields.amount(value, "start_time", fields.LATEST_MS)),
        end_time=int(fields.amount(value, "end_time", fields.LATEST_MS)),
        metadata={name: fields.typed(metadata, name, str) for name in metadata},
        runtime_env=fields.typed(value, "runtime_env", dict),
        node_id=str(value.get("driver_node_id") or ""),
    )


def _unreadable(value: Any, why: str) -> Job:
    try:
        name = fields.identifier(value, "submission_id")
    except fields.FieldError:
        name = ""
    message = f"its record cannot be read: {why}"
    return Job(status=Status.UNREADABLE, submission_id=name, message=message)
