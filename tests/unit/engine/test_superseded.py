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


@pytest.fixture
def in_bucket(stack, store, monkeypatch):
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://states/team")
    return stack


def test_an_operation_that_lost_its_lock_stops_and_says_what_it_made(  # F51
    in_bucket, store, monkeypatch
):
    """A runner that was paused, whose lock somebody removed, goes on after the next one."""
    other, save = Backend("s3://states/team", Path()), Backend.save

    def save_and_pause(self, project, name, state, crypter):
        save(self, project, name, state, crypter)
        if state.pending:
            monkeypatch.setattr(Backend, "save", save)
            _cancel(other)
            with other.lock(project, name):
                other.load(project, name, PHRASE)
                other.save(project, name, State(), crypter)

    monkeypatch.setattr(Backend, "save", save_and_pause)
    in_bucket.declare(a={"text": "1"}, b={"after": "a"})
    output = in_bucket.fails("up").out
    assert "dev.json was written by another operation, so this operation stops" in output
    assert "only that one has a (a.0.json)" in output
    assert list(in_bucket.files()) == ["a.0.json"]
    assert other.load("files", "dev", PHRASE).resources == []
    (kept,) = other.folder.glob("refused/files/dev/dev.*.json")
    assert f"is kept as {kept}" in output
    assert b"a.0.json" in kept.read_bytes()


def test_keys_that_may_not_write_only_look(in_bucket, store, tmp_path):
    in_bucket.declare(a={"text": "1"})
    store.may = lambda *_: False
    keys = "nothing was changed. Look at the address and the keys of the state backend"
    for command in (["preview"], ["up"], ["stack", "ls"], ["cancel"]):
        assert keys in in_bucket.fails(*command).err
    read = ("list_objects_v2", "get_object", "head_object")
    store.may = lambda name, _: name in read
    plan = str(tmp_path / "plan.json")
    assert in_bucket.run("preview", "--save-plan", plan).code == 0
    assert keys in in_bucket.fails("up", "--plan", plan).err
    store.may = lambda name, key: name in read or "/locks/" in key
    assert "look at the store and its keys" in in_bucket.fails("up").out
    assert in_bucket.files() == {}
