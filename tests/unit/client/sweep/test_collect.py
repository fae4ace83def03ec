"""What a point has left, and what of it cannot be taken."""

import pytest

from client import store
from client.job_server import Job, Status
from client.store import FolderStore
from client.sweep import collect
from client.sweep.point import Point
from client.sweep.records import Records
from training.sweep import result

POINT = Point(number=3, overrides=("x=1",), identity="a", bundle={})
DONE = Job(status=Status.SUCCEEDED)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The store, with the result of a point that is done."""
    found = FolderStore("file:///store", tmp_path / "store")
    monkeypatch.setattr(store, "open_store", lambda _: found)
    return found


def test_an_archive_that_cannot_be_unpacked_fails_its_point_alone(tmp_path, place):
    with Records(tmp_path / "sweep", "first") as records:
        fault_of_files = "the files of a point cannot be unpacked"
        for archive, fault in ((b"no archive", fault_of_files), (b"", "")):
            record_key, archive_key = result.keys("first", 3, "job")
            place.put(record_key, result.write(result.Result(completed=True, value=1)))
            if archive:
                place.put(archive_key, archive)
            found = collect.collect(POINT, "job", DONE, records, None)
            assert found.error.startswith(fault)
            assert bool(found.error) is bool(fault)
            assert (records.get("a") is None) is bool(fault)
            assert place.get(record_key) is place.get(archive_key) is None
        assert records.get("a").number == 3
