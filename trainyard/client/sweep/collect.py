"""Brings a point's result and files from the store into the sweep's folder."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from trainyard.client import failure, store
from trainyard.client.console import warn
from trainyard.client.job_server import Job, Status
from trainyard.client.outputs import StackOutputs
from trainyard.client.sweep.point import Point, PointOutcome
from trainyard.client.sweep.records import DamagedArchiveError, Record, Records
from trainyard.failpoints import reach
from trainyard.store.objects import Store
from trainyard.sweep import result

MOST_ARCHIVE_BYTES = 2 * result.MOST_BYTES  # with the headers of many files


def collect(
    point: Point, record: Record, job: Job | None, records: Records, outputs: StackOutputs
) -> PointOutcome | None:
    """Takes a point's result and files, and then removes them from the store.

    The job is None where the cluster does not know it.

    Returns:
        How it ended; None if a job that the cluster has forgotten has left nothing.

    Raises:
        ClientError: the store cannot be read, or the sweep's folder cannot be written.
    """
    place = store.open_store(outputs)
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


def _left(place: Store, key: str, most: int) -> bytes | None:
    """Read a point's results; one that is too large or damaged does not stop other points."""
    try:
        return place.get(key, most)
    except store.TooLargeError as error:
        warn(f"warning: {error}")
        return b"too large"


def _why(job: Job) -> str:
    if job.status is Status.STOPPED:
        return "was stopped"
    if job.status is Status.FAILED:
        return failure.of(job)
    return "its job left no result in the store"
