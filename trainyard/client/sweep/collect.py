"""Brings a point's result and files into the sweep's folder.

They come from the store, or without one from the folder of logs on the node of the point's job.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard.access.bounded import MIB
from trainyard.client import failure, store
from trainyard.client.console import warn
from trainyard.client.dashboard import DashboardError, TooLongError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, JobServer, Status
from trainyard.client.outputs import StackOutputs
from trainyard.client.store_errors import TooLargeError
from trainyard.client.sweep.point import Point, PointOutcome
from trainyard.client.sweep.records import DamagedArchiveError, Record, Records
from trainyard.failpoints import reach
from trainyard.store.objects import Store
from trainyard.sweep import result

MOST_ARCHIVE_BYTES = 2 * result.MOST_BYTES  # with the headers of many files


@dataclass(frozen=True)
class NodeLogs:
    """The folder of logs on the node where a job's driver ran. Nobody removes files there."""

    server: JobServer
    node: str  # "" for one that is not known

    def get(self, name: str, most: int) -> bytes | None:
        """Read a file, None if it does not exist; ClientError if it does not come or is longer."""
        try:
            return self.server.file(self.node, name, most // MIB) if self.node else None
        except TooLongError as error:
            raise TooLargeError(str(error)) from None
        except DashboardError as error:
            raise ClientError(
                f"the result {name} cannot be fetched from the node's logs ({error}): run the "
                "same command again while that Ray runs"
            ) from None

    def delete(self, *names: str) -> None:
        """Leave files to the end of that Ray."""


def results(outputs: StackOutputs, job: Job | None) -> Store | NodeLogs:
    """Return where a job has left results of points; ClientError if a store cannot be opened."""
    if outputs.shows_runs:
        return store.open_store(outputs)
    return NodeLogs(JobServer(outputs), job.node_id if job else "")


def collect(
    point: Point, record: Record, job: Job | None, records: Records, outputs: StackOutputs
) -> PointOutcome | None:
    """Takes a point's result and files, and then removes them from a store.

    The job is None where the cluster does not know it.

    Returns:
        How it ended; None if a job that the cluster has forgotten has left nothing.

    Raises:
        ClientError: the store cannot be read, or the sweep's folder cannot be written.
    """
    place = results(outputs, job)
    record_key, archive_key = result.keys(record.sweep, point.number, record.job)
    content = _left(place, record_key, result.MOST_BYTES)
    if content is None:
        if job is None:
            return None
        why = _why(job)
        records.put(point.identity, replace(record, error=why))
        return PointOutcome(job=record.job, error=why)
    try:
        found = result.parse_result(content)
    except ValueError as error:  # it stops no other point, and no later start
        found = result.Result(completed=False, error=f"left {error}; run it again")
    why = "" if found.completed else found.error or "failed"
    packed = _left(place, archive_key, MOST_ARCHIVE_BYTES)
    if packed:
        with tempfile.NamedTemporaryFile() as file:
            file.write(packed)
            file.flush()
            try:
                records.unpack(Path(file.name), point.folder)
            except DamagedArchiveError as error:  # it stops no other point
                why = str(error)
    reach("point.unpacked")
    value = None if why else found.value
    ended = replace(record, done=not why, error=why, value=value)
    records.put(point.identity, ended)
    reach("point.recorded")
    for key in (archive_key, record_key):
        place.delete(key)
    return PointOutcome(job=record.job, value=value, error=why, note=found.note)


def _left(place: Store | NodeLogs, key: str, most: int) -> bytes | None:
    """Read a point's results; one that is too large or damaged does not stop other points."""
    try:
        return place.get(key, most)
    except TooLargeError as error:
        warn(f"warning: {error}")
        return b"too large"


def _why(job: Job) -> str:
    if job.status is Status.STOPPED:
        return "was stopped"
    if job.status is Status.FAILED:
        return failure.of(job)
    return "its job left no result"
