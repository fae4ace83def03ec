"""The engine killed, interrupted and run twice at once: no duplicate, no orphan, a valid state."""

import os
import random
import signal
import time
from contextlib import suppress

import pytest

pytestmark = pytest.mark.integration

SHAPES = [
    {"a": {"text": "1"}, "b": {"text_of": "a"}, "c": {"text": "1"}, "g": {"group": True}},
    {"a": {"text": "2"}, "b": {"text_of": "a"}, "d": {"text": "2", "after": "b"}},
    {"a": {"kind": "other"}, "b": {"text_of": "a"}, "c": {"kind": "exclusive-1"}},
    {"a": {"kind": "other"}, "c": {"kind": "exclusive-2", "text": "3"}, "g": {"group": True}},
]
NAMES = [{"a", "b", "c", "g-file"}, {"a", "b", "d"}, {"a", "b", "c"}, {"a", "c", "g-file"}]
ROUNDS = 16


def _kill_after(process, seconds):
    """Kill the engine after a while of its own work; False when it ended before."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return False
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return True


@pytest.mark.timeout(240)
def test_killed_at_random_moments(engine):
    choice = random.Random(9)
    killed = 0
    for round_ in range(ROUNDS):
        shape = round_ % len(SHAPES)
        engine.declare(**SHAPES[shape])
        # The steps begin a quarter of a second after the start and last as long as the delays.
        killed += _kill_after(engine.start("up", "--yes", delay=0.06), choice.uniform(0.2, 1.1))
        if round_ % 3 == 0:  # and kill the recovery as well
            killed += _kill_after(engine.start("up", "--yes", delay=0.06), choice.uniform(0.2, 1.1))
        code, output = engine.run("up", "--yes")
        assert code == 0, output
        assert set(engine.files()) == NAMES[shape]
        urns = [entry["urn"] for entry in engine.resources()]
        assert len(urns) == len(set(urns))
        code, output = engine.run("preview", "--refresh", "--expect-no-changes")
        assert code == 0, output
    assert killed >= ROUNDS // 2
    _kill_after(engine.start("destroy", "--yes", delay=0.1), 0.5)
    code, output = engine.run("destroy", "--yes")
    assert code == 0, output
    assert engine.files() == {}
    assert engine.resources() == []


def test_destroy_finds_what_a_killed_up_was_creating(engine):  # F12
    engine.declare(a={"text": "1"})
    process = engine.start("up", "--yes", delay=3)
    deadline = time.monotonic() + 20
    while not engine.files():  # the file is there, the create has not returned
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    code, output = engine.run("destroy", "--yes")
    assert code == 0, output
    assert "creating was interrupted" in output
    assert engine.files() == {}


def test_a_name_given_twice_is_not_taken_for_what_was_replaced(engine):  # F12
    engine.declare(c={"kind": "exclusive-1"})
    assert engine.run("up", "--yes")[0] == 0
    engine.declare(c={"kind": "exclusive-2", "text": "3"})
    process = engine.start("up", "--yes", delay=1)
    deadline = time.monotonic() + 20
    # The old file is deleted first; the new one gets its name, and its create has not returned.
    while "exclusive-2" not in "".join(p.read_text() for p in engine.folder.glob("c.0.json")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    code, output = engine.run("up", "--yes")
    assert code == 0, output
    assert engine.files() == {"c": "3"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_after_the_step_in_hand(engine, number):  # F11
    engine.declare(a={"text": "1"}, b={"text_of": "a"})
    process = engine.start("up", "--yes", delay=1)
    deadline = time.monotonic() + 20
    while not engine.files():  # the file is there, the create has not returned
        assert time.monotonic() < deadline
        time.sleep(0.01)
    begun = time.monotonic()
    process.send_signal(number)
    output, _ = process.communicate(timeout=10)
    assert time.monotonic() - begun < 10
    assert process.returncode == 1
    assert "canceled" in output
    assert set(engine.files()) == {"a"}
    assert any(entry["urn"].endswith("::a") for entry in engine.resources())
    code, output = engine.run("up", "--yes")
    assert code == 0, output
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


def test_a_full_disk_loses_nothing(engine, tmp_path):  # F16
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    small = tmp_path / "small"
    small.mkdir()
    assert os.system(f"mount -t tmpfs -o size=256k none {small}") == 0
    try:
        engine.environment["PULUMI_BACKEND_URL"] = f"file://{small}"
        engine.backend = small / ".pulumi"
        engine.declare(a={"text": "1"})
        assert engine.run("up", "--yes")[0] == 0
        before = engine.resources()
        filler = small / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        engine.declare(a={"text": "2"}, b={"text": "2"})
        code, output = engine.run("up", "--yes")
        assert code == 1
        assert "No space left on device" in output
        assert "Traceback" not in output
        assert engine.resources() == before
        filler.unlink()
        assert engine.run("up", "--yes")[0] == 0
        assert engine.files() == {"a": "2", "b": "2"}
    finally:
        os.system(f"umount {small}")
