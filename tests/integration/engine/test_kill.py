"""The engine killed, interrupted and run twice at once: no duplicate, no orphan, a valid state."""

import json
import os
import signal

import pytest

from tests.waiting import wait_for

pytestmark = pytest.mark.integration


def test_destroy_finds_what_a_killed_up_was_creating(engine):  # F12
    engine.declare(a={"text": "1"})
    engine.killed(engine.files, delay=3)  # the create of the file has not returned
    assert "creating was interrupted" in engine.done("destroy", "--yes")
    assert engine.files() == {}


def test_a_name_given_twice_is_not_taken_for_what_was_replaced(engine):  # F12
    engine.up(c={"kind": "exclusive-1"})
    engine.declare(c={"kind": "exclusive-2", "text": "3"})
    # The old file is deleted first; the new one gets its name, and its create has not returned.
    files = engine.folder.glob
    engine.killed(
        lambda: "exclusive-2" in "".join(p.read_text() for p in files("c.0.json")), delay=1
    )
    engine.up()
    assert engine.files() == {"c": "3"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_after_the_step_in_hand(engine, number):  # F11
    engine.declare(a={"text": "1"}, b={"text_of": "a"})
    process = engine.start("up", "--yes", delay=1)
    wait_for("a file, whose create has not returned", engine.files, 20)
    process.send_signal(number)
    output, _ = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "canceled" in output
    assert set(engine.files()) == {"a"}
    assert any(entry["urn"].endswith("::a") for entry in engine.resources())
    engine.up()
    assert set(engine.files()) == {"a", "b"}


@pytest.mark.timeout(180)
def test_of_two_at_once_exactly_one_proceeds(engine):  # F14
    for round_ in range(20):
        engine.declare(a={"text": str(round_)})
        pair = [engine.start("up", "--yes", delay=0.2) for _ in range(2)]
        results = [(process.communicate(timeout=60)[0], process.returncode) for process in pair]
        refused = [output for output, code in results if code != 0]
        assert all("the stack is locked by" in output for output in refused)
        # Both may succeed only one after the other; the machine decides.
        assert len(refused) <= 1
        assert engine.files() == {"a": str(round_)}
    assert not list(engine.backend.glob("locks/**/*.json"))


def _fill(folder, room):
    """Take all but some bytes of a small disk."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "filler").write_bytes(bytes(free - room))


def test_a_disk_that_is_full_at_a_checkpoint_loses_nothing(engine, tmp_path):  # F16
    """The disk has room for lock and backup, but not for the state before, then after, a create.

    With its inputs alone a resource takes half the room that it takes with its outputs.
    """
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    small = tmp_path / "small"
    small.mkdir()
    assert os.system(f"mount -t tmpfs -o size=2m none {small}") == 0
    try:
        engine.environment["PULUMI_BACKEND_URL"] = f"file://{small}"
        engine.backend = small / ".pulumi"
        engine.up(a={"text": "1"})
        before = engine.resources()
        backup = engine.state_file.with_suffix(".json.bak")
        size = 200_000
        engine.declare(a={"text": "1"}, b={"text": "x" * size})
        # It is made only once it is recorded that its create begins; then it is found again.
        for room, files, pending in ((size // 2, {"a"}, []), (size * 3 // 2, {"a", "b"}, ["b"])):
            _fill(small, room)
            output = engine.fails()
            assert f"{engine.state_file} could not be written (No space left on device)" in output
            assert json.loads(backup.read_text())["checkpoint"]["latest"]["resources"] == before
            assert set(engine.files()) == files
            assert {e["urn"] for e in engine.resources()} == {e["urn"] for e in before}
            creating = [op["resource"] for op in engine.latest().get("pending_operations", [])]
            assert [entry["urn"].rpartition("::")[2] for entry in creating] == pending
            (small / "filler").unlink()
        engine.up()
        assert {name: len(text) for name, text in engine.files().items()} == {"a": 1, "b": size}
        assert "pending_operations" not in engine.latest()
        engine.done("preview", "--refresh", "--expect-no-changes")
    finally:
        os.system(f"umount {small}")
