"""`up` and `destroy` that fail at each of their steps: nothing is lost, doubled or left."""

import itertools

import pytest

from trainyard import failpoints

pytestmark = pytest.mark.integration

FIRST = {"a": {"text": "1"}, "b": {"text_of": "a"}, "c": {"kind": "exclusive-1"}}
# One changes in place, one is replaced, one goes, one comes.
# The one that is replaced goes first, and its file's name is given again.
THEN = {"a": {"text": "2"}, "c": {"kind": "exclusive-2", "text": "3"}, "d": {"text": "4"}}
AFTER = {"a": "2", "c": "3", "d": "4"}


def _recorded(engine):
    """Names of the files that the state has."""
    ids = [entry.get("id", "") for entry in engine.resources()]
    return sorted(id_ for id_ in ids if id_.endswith(".json"))


def _failing(engine, command, step):
    """Let a command fail at each time that it reaches a step; yields after each failure."""
    for number in itertools.count(1):
        engine.up(**FIRST)
        engine.declare(**THEN)
        engine.environment[failpoints.VARIABLE] = f"{step} {number}"
        code, output = engine.run(command, "--yes")
        del engine.environment[failpoints.VARIABLE]
        if code == 0:
            assert number > 1, f"{command} never reaches {step}"
            return
        assert "Traceback" not in output
        yield


STEPS = ["lock.held kill", "state.write kill", "state.write ENOSPC", "state.written kill"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.timeout(300)
def test_the_next_run_finishes_what_failed_at_a_step(engine, step):  # F12 F16 F20
    for _ in _failing(engine, "up", step):
        engine.up()
        assert engine.files() == AFTER
        assert _recorded(engine) == sorted(path.name for path in engine.folder.glob("*.json"))
        assert "pending_operations" not in engine.latest()
    for _ in _failing(engine, "destroy", step):
        engine.done("destroy", "--yes")
        assert engine.files() == {}
        assert _recorded(engine) == []


def test_a_clock_that_steps_back_loses_nothing(engine):  # F42
    engine.up(**FIRST)
    engine.environment[failpoints.VARIABLE] = "state.write clock 1"
    engine.up(**THEN)
    del engine.environment[failpoints.VARIABLE]
    assert engine.files() == AFTER
    assert _recorded(engine) == sorted(path.name for path in engine.folder.glob("*.json"))
    engine.done("preview", "--refresh", "--expect-no-changes")
