"""The lock in a bucket, with stores that answer wrongly; a real one in tests/integration."""

import hashlib
import json
import tempfile
from pathlib import PurePosixPath

import pytest

from engine import bucket_lock, lock
from engine.errors import EngineError


class Place:
    """A path of a store that is a dictionary."""

    def __init__(self, store, path="locks/dev"):
        self.store, self.path = store, PurePosixPath(path)

    def __truediv__(self, name):
        return Place(self.store, self.path / name)

    def __eq__(self, other):
        return self.path == other.path

    def __hash__(self):
        return hash(self.path)

    @property
    def name(self):
        return self.path.name

    @property
    def parent(self):
        return Place(self.store, self.path.parent)

    def glob(self, _):
        return [Place(self.store, path) for path in self.store.objects]

    def create(self, content):
        self.store.create(self.path, content)

    def read_bytes(self):
        if self.path not in self.store.objects:
            raise FileNotFoundError
        return self.store.objects[self.path]

    def read_tagged(self):
        return self.read_bytes(), self.store.tag(self.path)

    def replace(self, content, tag):
        self.store.replace(self.path, content, tag)

    def unlink(self, *, missing_ok):
        assert missing_ok
        self.store.objects.pop(self.path, None)


class Store:
    """Creates an object once.

    Attributes:
        careless: the header that it does not know, so it takes the second one as well.
        lossy: its first answer is lost, so the stored object is sent again, and refused.
    """

    def __init__(self, *, careless="", lossy=False):
        self.objects, self.careless, self.lossy = {}, careless, lossy

    def create(self, path, content):
        if path in self.objects and self.careless != "If-None-Match":
            raise FileExistsError
        self.objects[path] = content
        if self.lossy:
            self.lossy = False
            raise FileExistsError

    def tag(self, path):
        return hashlib.sha256(self.objects[path]).hexdigest()

    def replace(self, path, content, tag):
        if path not in self.objects or (self.tag(path) != tag and self.careless != "If-Match"):
            raise FileExistsError
        self.objects[path] = content


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_a_store_in_which_two_could_write_is_refused(header):  # F51
    store = Store(careless=header)
    with (
        pytest.raises(EngineError, match=f"ignores {header}, so two operations could write"),
        bucket_lock.held(Place(store), "2026-01-01T00:00:00Z"),
    ):
        raise AssertionError
    assert store.objects == {}


@pytest.mark.parametrize("lossy", [False, True])
def test_a_lock_is_ours_also_where_its_answer_was_lost(lossy):
    store = Store(lossy=lossy)
    with bucket_lock.held(Place(store), "2026-01-01T00:00:00Z") as hold:
        assert hold.notes == []
        assert hold.lost() is None
        assert len(store.objects) == 1
    assert store.objects == {}


def test_cancel_removes_the_lock_that_it_names_and_no_other(monkeypatch):  # F51
    store, other = Store(), b'{"pid": 1}'
    place = Place(store)
    mine = place / bucket_lock.NAME
    mine.create(b'{"pid": 0, "username": "ada", "hostname": "runner", "timestamp": "2001"}')
    judge = bucket_lock._judge

    def judged(path):
        """Another operation takes the lock right after it was read."""
        found = judge(path)
        store.objects[path.path] = other
        return found

    monkeypatch.setattr(bucket_lock, "_judge", judged)
    with pytest.raises(EngineError, match=r"lock of ada@runner \(pid 0\) since 2001 is gone"):
        bucket_lock.cancel(place)
    assert store.objects == {mine.path: other}
    monkeypatch.undo()
    assert [who.partition(",")[0] for who in bucket_lock.cancel(place)] == ["an unknown process"]
    assert store.objects == {}


def test_an_operation_whose_lock_is_anothers_neither_has_it_nor_removes_it():  # F51
    store = Store()
    with bucket_lock.held(Place(store), "2026-01-01T00:00:00Z") as hold:
        (path,) = store.objects
        del store.objects[path]
        assert hold.lost() == ""
        store.objects[path] = b"another's"
        assert "an unknown process" in hold.lost()
    assert store.objects == {path: b"another's"}


@pytest.fixture
def own_files(tmp_path, monkeypatch):
    """The files that locks name, of this machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: list(tmp_path.iterdir())


def _left(place, start):
    """The lock of a killed engine, with a start of its process."""
    holder = lock.myself("2001") | lock.own_file() | {"processStart": start}
    (place / bucket_lock.NAME).create(json.dumps(holder).encode())


@pytest.mark.parametrize("way", ["take over", "cancel"])
def test_the_file_of_a_killed_engine_goes_with_its_lock(own_files, way):  # F52
    place = Place(Store())
    _left(place, start=1)
    before = own_files()
    if way == "cancel":
        assert len(bucket_lock.cancel(place)) == 1
        assert own_files() == []
        return
    with bucket_lock.held(place, "2026-01-01T00:00:00Z") as hold:
        assert len(hold.notes) == 1
        [own] = own_files()
        assert [own] != before
    assert own_files() == []


def test_who_is_refused_leaves_no_file(own_files):  # F52
    place = Place(Store())
    _left(place, start=lock.myself("2001")["processStart"])
    before = own_files()
    with (
        pytest.raises(EngineError, match="is locked by"),
        bucket_lock.held(place, "2026-01-01T00:00:00Z"),
    ):
        raise AssertionError
    assert own_files() == before


def test_a_lock_that_a_lost_store_keeps_has_its_file(own_files, monkeypatch):  # F52
    place = Place(Store())

    def lost(_):
        raise ConnectionError

    with bucket_lock.held(place, "2026-01-01T00:00:00Z"):
        monkeypatch.setattr(Place, "read_tagged", lost)
    [own] = own_files()
    [content] = place.store.objects.values()
    assert json.loads(content)["ownFile"] == str(own)
