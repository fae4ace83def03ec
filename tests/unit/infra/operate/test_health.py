"""Only programs of this machine that are as their state says are taken for well, without Pulumi."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from infra.operate import health

ROOT = Path(__file__).parents[4]

PROPS = {"name": "web", "healthy": True}


def _entry(**changes: Any) -> dict[str, Any]:
    made = {"type": "pulumi-python:dynamic/process:Program", "id": "web", "outputs": PROPS}
    return {"custom": True, **made, **changes}


@pytest.fixture
def state(monkeypatch):
    """A stack with one program, which is there."""
    found = Mock(resources=[_entry()], kind=Mock(), backend=Mock())
    found.kind.read.side_effect = lambda _, props: props
    found.backend.exists.return_value, found.backend.in_use_by.return_value = True, ""
    found.backend.load.side_effect = lambda *_: Mock(resources=found.resources)
    place = Mock(), "dev", found.backend
    monkeypatch.setattr(health.outputs, "place", lambda *_: place)
    monkeypatch.setattr(health, "passphrase", lambda: "x")
    monkeypatch.setattr(health, "KINDS", {"program": found.kind})
    return found


def test_a_program_that_is_as_its_state_says_is_well(state):
    state.resources.append({"type": "pulumi:pulumi:Stack", "outputs": {}})
    assert health.all_well(Path(), "dev")
    state.kind.read.side_effect = None
    for seen in (None, {**PROPS, "healthy": False}, {**PROPS, "name": "other"}):
        state.kind.read.return_value = seen
        assert not health.all_well(Path(), "dev")


@pytest.mark.parametrize(
    "entry",
    [
        _entry(type="pulumi-python:dynamic/containers:Container"),
        _entry(outputs={**PROPS, "host": {}}),
        _entry(outputs={**PROPS, "healthy": False}),
    ],
)
def test_another_service_is_left_to_the_whole_look(state, entry):  # F63
    state.resources.append(entry)
    assert not health.all_well(Path(), "dev")


def test_a_stack_without_services_or_state_or_that_changes_is_not_well(state):
    for which, value in (("in_use_by", "an up"), ("exists", False)):
        before = getattr(state.backend, which).return_value
        getattr(state.backend, which).return_value = value
        assert not health.all_well(Path(), "dev")
        getattr(state.backend, which).return_value = before
    assert health.all_well(Path(), "dev")
    state.resources.clear()
    assert not health.all_well(Path(), "dev")


def test_it_loads_no_pulumi():  # P18
    code = "import sys, infra.operate.health; print('pulumi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"False\n"
