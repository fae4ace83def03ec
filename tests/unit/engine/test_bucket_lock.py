"""The lock in a bucket, with stores that answer wrongly; a real one in tests/integration."""

import json
import re
import socket
import tempfile
from pathlib import PurePosixPath
from unittest.mock import Mock

import pytest

from engine import bucket_lock, lock
from engine.errors import EngineError
from trainyard.access.state_bucket import BucketPath

FOLDER = BucketPath("s3://states", PurePosixPath("locks/dev"))
LOCK = FOLDER / bucket_lock.NAME
NOW = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_a_store_in_which_two_could_write_is_refused(store, header):  # F51
    store.careless = header
    with (
        pytest.raises(EngineError, match=f"ignores {header}, so two operations could write"),
        bucket_lock.hold(FOLDER, NOW),
    ):
        raise AssertionError
    assert store.objects == {}


@pytest.mark.parametrize("lossy", [False, True])
def test_a_lock_is_ours_also_where_its_answer_was_lost(store, lossy):
    store.lost = int(lossy)
    with bucket_lock.hold(FOLDER, NOW) as hold:
        assert hold.notes == []
        assert hold.lost() is None
        assert len(store.objects) == 1
    assert store.objects == {}


def test_cancel_removes_the_lock_that_it_names_and_no_other(store, monkeypatch):  # F51
    other = b'{"pid": 1}'
    LOCK.create(b'{"pid": 9, "username": "ada", "hostname": "runner", "timestamp": "2001"}')
    judge = lock.judge

    def judged(path):
        """Another operation takes the lock right after it was read."""
        found = judge(path)
        store.objects[str(path.key)] = other
        return found

    monkeypatch.setattr(lock, "judge", judged)
    with pytest.raises(EngineError, match=r"lock of ada@runner \(pid 9\) since 2001 is gone"):
        lock.cancel(FOLDER)
    assert store.objects == {str(LOCK.key): other}
    monkeypatch.setattr(lock, "judge", judge)
    assert [who.partition(",")[0] for who in lock.cancel(FOLDER)] == ["an unknown process"]
    assert store.objects == {}


def test_an_operation_whose_lock_is_anothers_neither_has_it_nor_removes_it(store):  # F51
    with bucket_lock.hold(FOLDER, NOW) as hold:
        (path,) = store.objects
        del store.objects[path]
        assert hold.lost() == ""
        store.objects[path] = b"another's"
        assert "an unknown process" in hold.lost()
    assert store.objects == {path: b"another's"}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("engine", {"hostname": "runner-3", "bootId": "x", "pidNamespace": "y"}),
        ("3f1c", {"hostname": socket.gethostname()}),  # the CLI's
    ],
)
def test_a_lock_of_another_machine_or_of_the_cli_is_respected(store, name, fields):  # F51
    holder = {"username": "ada", "pid": 1, "timestamp": "2001"} | fields
    (FOLDER / f"{name}.json").create(json.dumps(holder).encode())
    who = f"ada@{fields['hostname']} (pid 1) since 2001"
    with (
        pytest.raises(EngineError, match=rf"{re.escape(who)}; .* cancel -s dev"),
        bucket_lock.hold(FOLDER, NOW),
    ):
        raise AssertionError
    assert lock.cancel(FOLDER) == [who]
    assert store.objects == {}


@pytest.fixture
def own_files(tmp_path, store, monkeypatch):
    """The files that locks name, of this machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: list(tmp_path.iterdir())


def _left(start):
    """The lock of a killed engine, with a start of its process."""
    holder = lock.myself("2001") | lock.own_file() | {"processStart": start}
    LOCK.create(json.dumps(holder).encode())


@pytest.mark.parametrize("way", ["take over", "cancel"])
def test_the_file_of_a_killed_engine_goes_with_its_lock(own_files, way):  # F52
    _left(start=1)
    before = own_files()
    if way == "cancel":
        assert len(lock.cancel(FOLDER)) == 1
        assert own_files() == []
        return
    with bucket_lock.hold(FOLDER, NOW) as hold:
        assert len(hold.notes) == 1
        [own] = own_files()
        assert [own] != before
    assert own_files() == []


def test_who_is_refused_leaves_no_file(own_files):  # F52
    _left(start=lock.myself("2001")["processStart"])
    before = own_files()
    with (
        pytest.raises(EngineError, match="is locked by"),
        bucket_lock.hold(FOLDER, NOW),
    ):
        raise AssertionError
    assert own_files() == before


def test_a_lock_that_a_lost_store_keeps_has_its_file(store, own_files, monkeypatch):  # F52
    with bucket_lock.hold(FOLDER, NOW):
        monkeypatch.setattr(BucketPath, "read_tagged", Mock(side_effect=ConnectionError))
    [own] = own_files()
    [content] = store.objects.values()
    assert json.loads(content)["ownFile"] == str(own)
