"""The lock in a bucket, with stores that answer otherwise; a real one in tests/integration."""

from pathlib import PurePosixPath

import pytest

from engine import bucket_lock
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
        return self.read_bytes(), "tag"

    def unlink(self, *, missing_ok):
        assert missing_ok
        self.store.objects.pop(self.path, None)


class Store:
    """Creates an object once.

    Attributes:
        careless: it knows no If-None-Match, and takes the second one as well.
        lossy: its first answer is lost, so what was stored is sent again, and refused.
    """

    def __init__(self, *, careless=False, lossy=False):
        self.objects, self.careless, self.lossy = {}, careless, lossy

    def create(self, path, content):
        if path in self.objects and not self.careless:
            raise FileExistsError
        self.objects[path] = content
        if self.lossy:
            self.lossy = False
            raise FileExistsError


def test_a_store_in_which_two_could_write_is_refused():
    store = Store(careless=True)
    with (
        pytest.raises(EngineError, match="ignores If-None-Match, so two operations could write"),
        bucket_lock.held(Place(store), "2026-01-01T00:00:00Z"),
    ):
        raise AssertionError
    assert store.objects == {}


@pytest.mark.parametrize("lossy", [False, True])
def test_a_lock_is_ours_also_where_its_answer_was_lost(lossy):
    store = Store(lossy=lossy)
    with bucket_lock.held(Place(store), "2026-01-01T00:00:00Z") as notes:
        assert notes == []
        assert len(store.objects) == 1
    assert store.objects == {}
