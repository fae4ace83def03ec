"""What the state of a stack gives to a bug report, whatever its services do."""

import json
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pulumi
import pytest

from engine.errors import EngineError
from engine.state import State
from engine.values import secret
from infra.operate import debug_dump


def entry(name: str, **outputs: Any) -> dict[str, Any]:
    urn = f"urn:pulumi:dev::trainyard::pulumi-python:dynamic/process:Program::{name}"
    made = {"urn": urn, "id": name, "custom": True, "type": "t", "provider": "p", "inputs": {}}
    return {**made, "outputs": {"healthy": True, "fault": "", "log": ["a", "b"], **outputs}}


@pytest.fixture
def stack(monkeypatch, tmp_path):
    """A stack with a well service, an ill one, one that is out of reach and one that hangs."""
    top = {"urn": "urn:x::trainyard::pulumi:pulumi:Stack::x", "type": "pulumi:pulumi:Stack"}
    top["outputs"] = {"token": secret("canary"), "url": "http://x"}
    services = [entry("store", keys=secret("root")), entry("head", fault="head keeps ending")]
    services += [entry("away", log=None), entry("stuck", hangs=True)]
    backend, over = Mock(), threading.Event()
    backend.history.return_value = [{"kind": "update"}] * 30
    backend.in_use_by.return_value = "an up"
    backend.load.side_effect = lambda *_: State(resources=[top, *services])
    settings = Mock(config={"t:workers": "2", "t:apiKey": "canary-api"}, secret_keys=["t:apiKey"])
    settings.secrets = ["canary-api"]

    def log(_id: str, olds: dict[str, Any], lines: int) -> list[str]:
        return list(olds["log"]) if "hangs" not in olds or over.wait(30) else []

    provider = Mock(log=log, fault=lambda _, olds: olds["fault"])
    place = Mock(main=tmp_path), "x", backend
    monkeypatch.setattr(debug_dump.outputs, "place", lambda *_: place)
    monkeypatch.setattr(debug_dump, "read_settings", lambda *_: settings)
    monkeypatch.setattr(debug_dump, "passphrase", lambda: "canary-phrase")
    monkeypatch.setattr(debug_dump, "context_of", lambda *_: Mock(provider=lambda *_: provider))
    monkeypatch.setattr(debug_dump, "SECONDS", 0.5)
    yield backend
    over.set()


def test_services_that_fail_or_hang_cost_no_other_its_log_and_secrets_are_apart(stack):  # F35
    found = debug_dump.collect(Path(), "x")
    files = found["files"]
    assert files["services/store.log"] == "health: well\na\nb\n"
    assert files["services/head.log"] == "health: head keeps ending\na\nb\n"
    assert found["unread"] == {
        "services/away.log": "'NoneType' object is not iterable",
        "services/stuck.log": "no answer within 0.5 s",
    }
    assert {"canary", "canary-api", "canary-phrase", "root"} == {*found["secrets"]}
    assert "canary" not in json.dumps(files)
    assert files["stack/settings.json"] == {"t:workers": "2", "t:apiKey": "***"}
    assert files["stack/operations.json"]["in use by"] == "an up"
    assert len(files["stack/operations.json"]["newest first"]) == debug_dump.OPERATIONS


def test_a_stack_that_is_down_has_its_settings(stack):
    stack.exists.return_value = False
    found = debug_dump.collect(Path(), "x")
    assert found["unread"] == found["files"]["stack/outputs.json"] == {}
    assert found["files"]["stack/settings.json"]["t:workers"] == "2"


def test_without_the_passphrase_nothing_is_told(stack):  # F35
    stack.load.side_effect = EngineError("incorrect passphrase")
    with pytest.raises(pulumi.RunError, match="incorrect passphrase"):
        debug_dump.collect(Path(), "x")
