"""The engine's command provider and the real plugin take over each other's stacks."""

import shutil
import sys
from functools import partial

import pytest

from engine.state import Backend
from engine.values import reveal

MISSING = [name for name in ("pulumi", "pulumi-resource-command") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.integration,
    pytest.mark.pulumi,
    pytest.mark.skipif(bool(MISSING), reason=f"not on PATH: {', '.join(MISSING)}"),
    pytest.mark.timeout(300),
]
RECORDED = ("type", "inputs", "outputs", "additionalSecretOutputs", "propertyDependencies")


@pytest.fixture
def pulumi(commands, pulumi_cli):
    commands.environment |= {
        "PULUMI_PYTHON_CMD": sys.executable,
        "PYTHONPATH": str(commands.project),
    }
    commands.backend.parent.mkdir(exist_ok=True)
    return partial(pulumi_cli, commands.project, commands.environment, "dev")


def _shape(commands, trigger, word):
    """One of each kind, each of which leaves a mark when it runs."""
    notes = commands.folder / "notes"
    source = commands.project / "source"
    (source / "sub").mkdir(parents=True, exist_ok=True)
    (source / "sub" / "a").write_text(word)
    (source / "b").write_text("2" * 1000)
    secret = {"stdin": "canary-stdin", "environment": {"ACCEPTED_A": "1"}, "secrets": ["stdin"]}

    def noting(name, kind):
        said = f"echo {name} {word} >> {notes}; echo said"
        return {
            "kind": kind,
            "create": said,
            "update": f"{said} again >&2",
            "delete": f"echo {name} gone >> {notes}",
            "triggers": [trigger, {"a": [1.5, None, True]}],
        }

    def copied(name, **source):
        return {"kind": "copy", "remote_path": str(commands.folder / "there" / name), **source}

    return {
        "local": noting("local", "local") | secret,
        "remote": noting("remote", "remote") | secret | {"logging": "none"},
        "plain": {"kind": "local", "create": "printf 'a\\n\\n'", "dir": str(commands.folder)},
        "nothing": {"kind": "remote"},
        "text": copied("text", text=word),
        "file": copied("file", file="source/sub/a"),
        "folder": copied("folder", files="source/") | {"triggers": [trigger]},
    }


def _unchanged(commands, pulumi):
    """Neither finds anything to do, with and without a look at what is really there."""
    before = commands.lines("notes")
    pulumi("preview", "--expect-no-changes", "--diff")
    pulumi("preview", "--refresh", "--expect-no-changes", "--diff")
    commands.up("--refresh", "--expect-no-changes", "--diff")
    pulumi("refresh", "--yes", "--expect-no-changes", "--diff")
    commands.up("--refresh", "--expect-no-changes", "--diff")
    pulumi("up", "--yes", "--expect-no-changes", "--diff")
    commands.up("--expect-no-changes", "--diff")
    assert commands.lines("notes") == before


def test_the_plugin_sees_no_change_after_the_engine(commands, pulumi):
    commands.up(**_shape(commands, 1, "one"))
    _unchanged(commands, pulumi)
    commands.up(**_shape(commands, 1, "two"))
    assert commands.lines("notes")[2:].count("local two") == 1
    _unchanged(commands, pulumi)
    commands.up(**_shape(commands, 2, "two"))
    assert "remote gone" in commands.lines("notes")
    _unchanged(commands, pulumi)
    pulumi("destroy", "--yes")
    assert commands.lines("notes").count("remote gone") == 2


def test_the_engine_sees_no_change_after_the_plugin(commands, pulumi):
    pulumi("stack init")
    commands.declare(**_shape(commands, 1, "one"))
    pulumi("up", "--yes")
    _unchanged(commands, pulumi)
    commands.declare(**_shape(commands, 1, "two"))
    pulumi("up", "--yes")
    assert (commands.folder / "there" / "text").read_text() == "two"
    _unchanged(commands, pulumi)
    commands.declare(**_shape(commands, 2, "two"))
    pulumi("up", "--yes")
    _unchanged(commands, pulumi)
    commands.done("destroy", "--yes")
    assert commands.lines("notes").count("local gone") == 2


def test_both_do_and_record_the_same(commands, pulumi):
    """Up to what is drawn at random, and what the engine alone keeps secret: `localOut`."""

    def recorded():
        backend = Backend(f"file://{commands.backend.parent}", commands.project)
        state = backend.load("commands", "dev", "x")
        return {
            entry["urn"].rpartition("::")[2]: {key: entry.get(key) for key in RECORDED}
            for entry in state.resources
            if entry["type"].startswith("command:")
        }

    found = []
    pulumi("stack init")
    for up in (commands.up, partial(pulumi, "up", "--yes")):
        states = []
        for word in ("one", "two"):
            commands.declare(**_shape(commands, 1, word))
            up()
            states.append(recorded())
        found.append((*states, sorted(commands.lines("notes"))))
        commands.done("destroy", "--yes")
        (commands.folder / "notes").unlink()
        shutil.rmtree(commands.folder / "there")
    ours, theirs = found
    for state in ours[:2]:
        for name in ("local", "remote"):
            for key in ("stdout", "stderr"):
                state[name]["outputs"][key] = reveal(state[name]["outputs"][key])
    assert ours == theirs
