"""The engine killed, interrupted and run twice at once: no duplicate, no orphan, a valid state."""

import signal

import pytest

from tests.waiting import wait_for

pytestmark = pytest.mark.integration


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
