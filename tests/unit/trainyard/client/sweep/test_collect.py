"""The files that a point has left, and damaged ones."""

import gzip
import io
import itertools
import tarfile
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests import web
from trainyard import failpoints
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status
from trainyard.client.store import StackFolder
from trainyard.client.sweep import collect
from trainyard.client.sweep.point import Point
from trainyard.client.sweep.records import Record, Records
from trainyard.store.objects import FolderStore
from trainyard.sweep import result

POINT = Point(number=3, overrides=("x=1",), identity="a", folder="3", bundle={})
SENT = Record(sweep="first", job="job", number=3, folder="3", overrides=("x=1",))
DONE = Job(status=Status.SUCCEEDED)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The store, with the result of a point that is done."""
    found = StackFolder(tmp_path / "store")
    monkeypatch.setattr(collect, "results", lambda *_: found)
    return found


def packed(name):
    """An archive of one file."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    return written.getvalue()


def test_a_result_that_cannot_be_read_fails_its_point_alone(tmp_path, place):  # F53
    with Records(tmp_path / "sweep", "first") as records:
        record_key, archive_key = result.keys("first", 3, "job")
        place.write(record_key, b'{"completed": ')
        place.write(archive_key, gzip.compress(packed("left.txt"))[:-9])
        found = collect.collect(POINT, SENT, DONE, records, None)
        assert "cannot be unpacked" in found.error
        place.write(record_key, b'{"completed": ')
        found = collect.collect(POINT, SENT, DONE, records, None)
        assert found.error == "left no result of a point: JSONDecodeError; run it again"
        assert place.get(record_key) is None  # no later start meets it


def test_a_result_that_is_too_large_fails_its_point_alone(  # F69
    tmp_path, place, monkeypatch, capsys
):
    monkeypatch.setattr(result, "MOST_BYTES", 2**20)
    record_key, archive_key = result.keys("first", 3, "job")
    with Records(tmp_path / "sweep", "first") as records:
        place.write(record_key, bytes(2**20 + 1))
        assert "no result of a point" in collect.collect(POINT, SENT, DONE, records, None).error
        assert f"{record_key} has more than 1 MiB" in capsys.readouterr().err
        monkeypatch.setattr(collect, "MOST_ARCHIVE_BYTES", 2**20)
        place.write(record_key, result.write(result.Result(completed=True, value=1)))
        place.write(archive_key, bytes(2**20 + 1))
        assert "cannot be unpacked" in collect.collect(POINT, SENT, DONE, records, None).error
        levels = b"[" * 200 + b"]" * 200  # more than a table can show
        place.write(record_key, b'{"completed":true,"note":"","error":"","value":' + levels + b"}")
        assert "no result of a point" in collect.collect(POINT, SENT, DONE, records, None).error


def test_an_archive_holds_files_of_its_own_point_alone(tmp_path, place):  # F53
    with Records(tmp_path / "sweep", "first") as records:
        other = replace(SENT, job="other", number=0, folder="0", done=True, value=1)
        records.put("other", other)
        record_key, archive_key = result.keys("first", 3, "job")
        for name in (".points/other.json", ".points/sweep.json", "0/left.txt", "results.csv"):
            place.write(record_key, result.write(result.Result(completed=True, value=1)))
            place.write(archive_key, packed(name))
            assert not collect.collect(POINT, SENT, DONE, records, None).error
            assert (tmp_path / "sweep" / "3" / name).exists()
        assert records.get("other") == other
        assert sorted(path.name for path in (tmp_path / "sweep").iterdir()) == [".points", "3"]


def test_an_archive_that_cannot_be_unpacked_fails_its_point_alone(tmp_path, place):
    with Records(tmp_path / "sweep", "first") as records:
        fault_of_files = "the files of a point cannot be unpacked"
        for archive, fault in ((b"no archive", fault_of_files), (b"", "")):
            record_key, archive_key = result.keys("first", 3, "job")
            place.write(record_key, result.write(result.Result(completed=True, value=1)))
            if archive:
                place.write(archive_key, archive)
            found = collect.collect(POINT, SENT, DONE, records, None)
            assert found.error.startswith(fault)
            assert bool(found.error) is bool(fault)
            assert records.get("a").done is not bool(fault)
            assert records.get("a").error == found.error
            assert place.get(record_key) is place.get(archive_key) is None
        assert records.get("a").number == 3


@pytest.mark.parametrize("step", ["point.unpacked ENOSPC", "point.recorded ECONNREFUSED"])
def test_a_collection_that_fails_at_a_step_is_done_again(tmp_path, place, step, monkeypatch):  # F32
    record_key, archive_key = result.keys("first", 3, "job")
    place.write(record_key, result.write(result.Result(completed=True, value=1)))
    place.write(archive_key, packed("left.txt"))
    with Records(tmp_path / "sweep", "first") as records:
        monkeypatch.setattr(failpoints, "_reached", itertools.count(1))
        monkeypatch.setenv(failpoints.VARIABLE, f"{step} 1")
        with pytest.raises(OSError, match=r"No space|refused"):
            collect.collect(POINT, SENT, DONE, records, None)
        assert place.get(record_key)  # nothing is lost
        assert collect.collect(POINT, SENT, DONE, records, None).value == 1
        assert records.get("a").done
        assert (tmp_path / "sweep" / "3" / "left.txt").exists()
        assert place.get(record_key) is place.get(archive_key) is None


def test_without_a_store_results_come_from_the_node(tmp_path, stack, monkeypatch):  # B16
    there, job = FolderStore(tmp_path / "logs"), replace(DONE, node_id="n1")
    record_key, archive_key = result.keys("first", 3, "job")
    refusals = {"n1": b"A file is not found at: x", "n2": b"Agent for node id: n2 doesn't exist."}

    def answer(asked):
        query = dict(parse_qsl(urlsplit(asked.path).query))
        content = there.get(query["filename"]) if query["node_id"] == "n1" else None
        return (200, content) if content else (500, refusals[query["node_id"]])

    def collected(job):
        return collect.collect(POINT, SENT, job, records, ray)

    with Records(tmp_path / "sweep", "first") as records, web.serving(answer) as server:
        ray = replace(stack, storage_url="", dashboard_url=server.url)
        assert collected(job).error == "its job left no result"
        assert collected(None) is None  # a Ray that has started anew: the point runs again
        there.write(record_key, result.write(result.Result(completed=True, value=1)))
        there.write(archive_key, packed("left.txt"))
        assert collected(replace(job, node_id="n2")).error == "its job left no result"
        assert collected(job).value == 1
        assert (tmp_path / "sweep" / "3" / "left.txt").exists()
        there.write(archive_key, bytes(2**20 + 1))
        monkeypatch.setattr(collect, "MOST_ARCHIVE_BYTES", 2**20)
        assert "cannot be unpacked" in collected(job).error  # F69
        there.delete(record_key)
        refusals["n1"] = b"Max number of in-progress requests"
        with pytest.raises(ClientError, match=rf"{record_key} cannot be fetched .*status 500.*run"):
            collected(job)  # the result is there: nothing says that the point failed
