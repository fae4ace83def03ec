"""An operation that lost its stack overwrites no newer state, and reports its resources: F51."""

import json
from pathlib import Path

import pytest

from engine import crypto
from engine.crypto import Crypter
from engine.errors import SupersededError
from engine.state import Backend, State

PHRASE = "correct horse"


def _state(*names):
    urn = "urn:pulumi:dev::files::pulumi-python:dynamic/files:File::{}"
    entries = [{"urn": urn.format(name), "custom": False, "id": f"{name}-1"} for name in names]
    return State(resources=[entry | {"type": "t"} for entry in entries])


@pytest.fixture(params=["folder", "bucket"])
def backend(request, tmp_path, store, monkeypatch):
    """Another runner's view of the states at each call."""
    monkeypatch.setattr(crypto, "ROUNDS", 10)
    url = f"file://{tmp_path}" if request.param == "folder" else "s3://states/team"
    return lambda: Backend(url, Path())


@pytest.fixture
def crypter(backend):
    return Crypter.fresh(PHRASE)


def _names(backend):
    return [e["urn"].rpartition("::")[2] for e in backend.load("files", "dev", PHRASE).resources]


def _cancel(backend):
    """As another machine does, which cannot tell that the process is alive."""
    for path in [*backend._locks("files", "dev").glob("*.json")]:
        path.unlink()


def test_a_state_that_another_operation_wrote_is_not_overwritten(backend, crypter):  # F51
    first, second = backend(), backend()
    with first.lock("files", "dev"):
        first.load("files", "dev", PHRASE)
        first.save("files", "dev", _state("a"), crypter)
        _cancel(second)
        with second.lock("files", "dev"):
            second.load("files", "dev", PHRASE)
            second.save("files", "dev", _state("a", "b"), crypter)
            with pytest.raises(SupersededError, match=r"locked by .* only that one has c \(c-1\)"):
                first.save("files", "dev", _state("a", "c"), crypter)
            second.save("files", "dev", _state("a", "b", "d"), crypter)
        # Nor when that has ended.
        with pytest.raises(SupersededError, match="was written by another operation") as told:
            first.save("files", "dev", _state("a", "c", "e"), crypter)
    assert "only that one has c (c-1), e (e-1): look whether they exist" in str(told.value)
    assert _names(backend()) == ["a", "b", "d"]
    # Its resources are kept where the message says.
    (kept,) = first.folder.glob("refused/files/dev/dev.*.json")
    assert str(kept) in str(told.value)
    found = json.loads(kept.read_bytes())["checkpoint"]["latest"]["resources"]
    assert [entry["id"] for entry in found] == ["a-1", "c-1", "e-1"]


def test_an_operation_whose_lock_was_removed_writes_what_it_did_and_stops(backend, crypter):  # F51
    first = backend()
    with first.lock("files", "dev"):
        first.load("files", "dev", PHRASE)
        _cancel(first)
        with pytest.raises(SupersededError, match="was removed, so it stops"):
            first.save("files", "dev", _state("a"), crypter)
    assert _names(backend()) == ["a"]


def test_a_state_that_was_made_or_removed_meanwhile_is_another_operations(backend, crypter):  # F51
    first, second = backend(), backend()
    first.load("files", "dev", PHRASE)
    second.load("files", "dev", PHRASE)
    second.save("files", "dev", _state("b"), crypter)
    with pytest.raises(SupersededError, match="was written by another operation"):
        first.save("files", "dev", _state("a"), crypter)
    assert _names(backend()) == ["b"]
    second.remove("files", "dev")
    with pytest.raises(SupersededError, match="was written by another operation"):
        second.save("files", "dev", _state("c"), crypter)
    assert not backend().exists("files", "dev")


def test_a_write_whose_answer_was_lost_is_ours(store, backend, crypter):  # F51
    first = backend()
    first.load("files", "dev", PHRASE)
    store.lost = 2
    for names in (["a"], ["a", "b"]):  # one that creates, one that replaces
        first.save("files", "dev", _state(*names), crypter)
    assert _names(backend()) == ["a", "b"]


def test_a_removed_stack_has_no_resources_when_it_is_locked(stack, monkeypatch):  # F51
    """Another operation made some between the first check and the lock."""
    stack.up()
    stack.run("destroy")
    lock = Backend.lock

    def late(self, project, name):
        monkeypatch.setattr(Backend, "lock", lock)
        stack.up(a={})
        return lock(self, project, name)

    monkeypatch.setattr(Backend, "lock", late)
    assert "run destroy first" in stack.fails("stack", "rm", "--yes").err
    assert stack.state_file.exists()
