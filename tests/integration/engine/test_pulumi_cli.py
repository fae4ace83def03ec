"""The pulumi CLI and the engine take over each other's stacks."""

import shutil

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.pulumi,
    pytest.mark.skipif(shutil.which("pulumi") is None, reason="the pulumi CLI is not on PATH"),
    pytest.mark.timeout(240),
]

SHAPE = {
    "a": {"text": "1", "token": "canary-token"},
    "b": {"text_of": "a"},
    "c": {"after": "b", "ignore_changes": ["kind"]},
    "g": {"group": True, "text": "x"},
}


def _engine(engine, command, *arguments):
    code, output = engine.run(command, *arguments)
    assert code == 0, output
    return output


def test_the_cli_sees_no_change_after_the_engine(engine, pulumi):
    engine.declare(**SHAPE)
    _engine(engine, "up", "--yes")
    pulumi("preview", "--expect-no-changes")
    pulumi("refresh", "--yes", "--expect-no-changes")
    engine.declare(**SHAPE | {"a": {"text": "2", "kind": "other"}})
    _engine(engine, "up", "--yes")
    pulumi("preview", "--expect-no-changes")
    assert "canary-made-secret" in pulumi("stack output", "--json", "--show-secrets")
    pulumi("destroy", "--yes")
    assert engine.files() == {}


def test_the_engine_sees_no_change_after_the_cli(engine, pulumi):
    engine.declare(**SHAPE)
    pulumi("stack init")
    pulumi("up", "--yes")
    _engine(engine, "up", "--yes", "--expect-no-changes")
    _engine(engine, "up", "--yes", "--refresh", "--expect-no-changes")
    engine.declare(**SHAPE | {"a": {"text": "2"}})
    pulumi("up", "--yes")
    _engine(engine, "preview", "--expect-no-changes")
    _engine(engine, "destroy", "--yes")
    assert engine.files() == {}
    pulumi("preview")
