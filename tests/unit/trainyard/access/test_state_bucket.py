"""A bucket of states whose store refuses for a moment."""

import errno

import pytest

from trainyard.access import state_bucket
from trainyard.access.state_bucket import PASSING, PASSING_TRIES, BucketError, BucketPath


@pytest.fixture
def path(monkeypatch):
    monkeypatch.setattr(state_bucket, "PASSING_PAUSE_SECONDS", 0)
    found = state_bucket.find("s3://states/team")
    return found / "locks" / "a.json"


@pytest.mark.parametrize(
    ("said", "refusals", "fails"),
    [(PASSING, 2, False), (PASSING, PASSING_TRIES, True), ("AccessDenied", 1, True)],
)
def test_a_lock_is_written_while_the_one_beside_it_goes(
    path, monkeypatch, said, refusals, *, fails
):
    calls = []

    def call(self, name, **more):
        calls.append(more)
        if len(calls) <= refusals:
            raise BucketError(errno.EIO, f"the store answers {said}: …", str(self))
        return {"ETag": '"1"'}

    monkeypatch.setattr(BucketPath, "_call", call)
    if fails:
        with pytest.raises(BucketError, match=said):
            path.create(b"lock")
        assert len(calls) == min(refusals, PASSING_TRIES)
    else:
        path.create(b"lock")
    assert all(each == {"Body": b"lock", "IfNoneMatch": "*"} for each in calls)


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_METADATA_SERVICE_TIMEOUT"])
def test_an_odd_variable_is_one_message(variable, monkeypatch):  # F76
    monkeypatch.setenv(variable, "nope")
    place = state_bucket.find(f"s3://of-{variable}")
    for ask in (lambda: place.address, place.exists):
        with pytest.raises(state_bucket.BucketError, match="nope"):
            ask()
