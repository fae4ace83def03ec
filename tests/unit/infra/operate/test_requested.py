"""The declared machines of a group: those that Ray requests, else the existing ones."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest

from cluster.ray_node import Growth
from infra.operate import requested

NUMBERS = range(1, 5)
INSTANCE = "pulumi-python:dynamic/lambda:Instance"


@pytest.mark.parametrize(
    ("least", "asked", "found"),
    [
        (0, [], []),
        (0, [3, 1], [1, 3]),  # each keeps its number
        (2, [3], [1, 3]),
        (2, [], [1, 2]),
        (1, [4], [4]),  # as many as are always requested, whichever they are
        (0, [0, 1, 5, 99], [1]),  # neither the head's machine nor more than there may be
    ],
)
def test_no_more_than_there_may_be_and_no_fewer_than_the_least(least, asked, found):
    assert requested.enough(NUMBERS, least, asked) == found


def test_fifty_machines_are_decided_on_at_once():
    assert requested.enough(range(1, 51), 0, range(50, 0, -1)) == [*range(1, 51)]


@pytest.fixture
def state(tmp_path, monkeypatch) -> Any:
    """Write the state of stack test: numbers of its instances, and of those begun."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    monkeypatch.delenv(requested.VARIABLE, raising=False)
    monkeypatch.setattr(pulumi, "get_project", lambda: "trainyard")
    monkeypatch.setattr(pulumi, "get_stack", lambda: "test")
    path = tmp_path / ".pulumi" / "stacks" / "trainyard" / "test.json"
    path.parent.mkdir(parents=True)

    def write(*there: int, begun: int | None = None, **more: Any) -> Path:
        def entry(number: int) -> dict[str, Any]:
            return {"type": INSTANCE, "inputs": {"node": number}, **more}

        deployment: dict[str, Any] = {"resources": [{"type": "x"}, *map(entry, there)]}
        if begun is not None:
            pending = {"type": "creating", "resource": entry(begun)}
            deployment["pending_operations"] = [pending]
        path.write_text(json.dumps({"version": 3, "checkpoint": {"latest": deployment}}))
        return path

    return write


def numbers(least: int = 0) -> list[int]:
    return requested.machines(NUMBERS, Growth(least=least, idle_seconds=60))


def test_a_users_own_up_keeps_what_is_there(state):
    assert numbers() == []  # nothing is up yet
    assert numbers(1) == [1]
    state(0, 2)
    assert numbers() == [2]
    assert numbers(2) == [1, 2]
    state(0, 2, begun=4)  # killed while it launched: it may be billed
    assert numbers() == [2, 4]
    state(0, 2, delete=True)  # about to go, when a destroy was interrupted
    assert numbers() == []


def test_a_request_is_met_and_ends_what_is_requested_no_more(state, monkeypatch):
    state(0, 2, 3)
    monkeypatch.setenv(requested.VARIABLE, "ray-worker-3,ray-worker-4,ray-worker-9")
    assert numbers() == [3, 4]
    monkeypatch.setenv(requested.VARIABLE, "")
    assert numbers() == []


def test_a_request_brings_no_stack_up_that_is_gone(state, monkeypatch):
    monkeypatch.setenv(requested.VARIABLE, "ray-worker-1")
    with pytest.raises(pulumi.RunError, match="stack test is not up"):
        numbers()


def test_what_is_there_is_kept_and_no_head_is_made_again(state, monkeypatch):
    monkeypatch.setenv(requested.VARIABLE, requested.AS_IT_IS)
    state(0, 2, begun=4)
    assert numbers() == [2, 4]
    state(2)  # the head has ended, and a refresh has seen it
    with pytest.raises(pulumi.RunError, match="stack test is not up"):
        numbers()
    state(0, 2, outputs={"healthy": False})  # `up` would replace it, with its data
    with pytest.raises(pulumi.RunError, match="has lost machine 0: "):
        numbers()


def test_a_state_that_cannot_be_read_ends_nothing(state):
    state(0, 2).write_text("{")
    with pytest.raises(pulumi.RunError, match="cannot be read"):
        numbers()
