"""What the state of a stack gives to a bug report, whatever its services do."""

import json
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pulumi
import pytest

from engine.errors import EngineError
from engine.providers import DynamicProvider
from engine.state import State
from engine.values import secret
from infra.operate import debug_dump


class Provider(DynamicProvider):
    """Services whose properties say what they do."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def fault(self, _id: str, olds: dict[str, Any]) -> str:
        return str(olds["fault"])

    def log(self, _id: str, olds: dict[str, Any], lines: int) -> list[str]:
        assert lines == debug_dump.LOG_LINES
        if "hangs" in olds:
            self.over.wait(30)
        return [str(line) for line in olds["log"]]


def entry(name: str, **outputs: Any) -> dict[str, Any]:
    urn = f"urn:pulumi:dev::trainyard::pulumi-python:dynamic/process:Program::{name}"
    made = {"urn": urn, "id": name, "custom": True, "type": "t", "provider": "p", "inputs": {}}
    return {**made, "outputs": {"healthy": True, "fault": "", "log": ["a", "b"], **outputs}}


@pytest.fixture
def stack(monkeypatch, tmp_path):
    """A stack with a well service, an ill one, one that is out of reach and one that hangs."""
    top = {"urn": "urn:x::trainyard::pulumi:pulumi:Stack::x", "type": "pulumi:pulumi:Stack"}
    state = State(
        resources=[
            {**top, "outputs": {"token": secret("canary"), "url": "http://x"}},
            entry("store", keys=secret("root")),
            entry("head", fault="head keeps ending"),
            entry("away", log=None),
            entry("stuck", hangs=True),
        ]
    )
    backend = Mock(**{"history.return_value": [{"kind": "update"}] * 30})
    backend.in_use_by.return_value = "an up"
    backend.load.side_effect = lambda *_: state
    settings = Mock(config={"t:workers": "2", "t:apiKey": "canary-api"}, secret_keys=["t:apiKey"])
    settings.secrets = ["canary-api"]
    project, provider = Mock(main=tmp_path), Provider()
    monkeypatch.setattr(debug_dump.outputs, "place", lambda *_: (project, "x", backend))
    monkeypatch.setattr(debug_dump, "read_settings", lambda *_: settings)
    monkeypatch.setattr(debug_dump, "passphrase", lambda: "canary-phrase")
    monkeypatch.setattr(debug_dump, "context_of", lambda *_: Mock(provider=lambda *_: provider))
    monkeypatch.setattr(debug_dump, "SECONDS", 0.5)
    yield backend
    provider.over.set()


def test_services_that_fail_or_hang_cost_no_other_its_log(stack):
    found = json.loads(json.dumps(debug_dump.collect(Path(), "x")))
    files = found["files"]
    assert files["services/store.log"] == "health: well\na\nb\n"
    assert files["services/head.log"] == "health: head keeps ending\na\nb\n"
    assert found["unread"] == {
        "services/away.log": "'NoneType' object is not iterable",
        "services/stuck.log": "no answer within 0.5 s",
    }


def test_its_secrets_are_told_apart_and_its_lock_too(stack):  # F35
    found = debug_dump.collect(Path(), "x")
    assert {"canary", "canary-api", "canary-phrase", "root"} == {*found["secrets"]}
    assert "canary" not in json.dumps(found["files"])
    assert found["files"]["stack/settings.json"] == {"t:workers": "2", "t:apiKey": "***"}
    operations = found["files"]["stack/operations.json"]
    assert operations["in use by"] == "an up"
    assert len(operations["newest first"]) == debug_dump.OPERATIONS


def test_a_stack_that_is_down_has_its_settings(stack):
    stack.exists.return_value = False
    found = debug_dump.collect(Path(), "x")
    assert found["unread"] == {}
    assert found["files"]["stack/settings.json"] == {"t:workers": "2", "t:apiKey": "***"}
    assert found["files"]["stack/outputs.json"] == {}


def test_without_the_passphrase_nothing_is_told(stack):  # F35
    stack.load.side_effect = EngineError("incorrect passphrase")
    with pytest.raises(pulumi.RunError, match="incorrect passphrase"):
        debug_dump.collect(Path(), "x")
