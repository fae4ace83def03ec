"""The engine's command provider and the real plugin take over each other's stacks."""

from functools import partial

import pytest

from engine.state import Backend
from engine.values import reveal

pytestmark = [
    pytest.mark.integration,
    pytest.mark.pulumi,
    pytest.mark.usefixtures("real_plugins"),
    pytest.mark.timeout(300),
]
RECORDED = ("type", "inputs", "outputs", "additionalSecretOutputs", "propertyDependencies")


def _shape(commands, trigger, word):
    """One of each kind, each of which leaves a mark when it runs."""
    notes = commands.folder / "notes"
    (commands.project / "source").write_text(word)

    def noting(name):
        return {
            "create": f"echo {name} {word} >> {notes}; echo said",
            "delete": f"echo {name} gone >> {notes}",
            "triggers": [trigger, {"a": [1.5, None, True]}],
        }

    return {
        "given": noting("given") | {"secrets": ["triggers"]},
        "other": noting("other"),
        "plain": {"create": "printf 'a\\n\\n'"},
        "file": {
            "kind": "copy",
            "file": "source",
            "remote_path": str(commands.folder / "there"),
            "triggers": [trigger],
        },
    }


def _unchanged(commands, pulumi):
    """Neither finds anything to do, with and without a refresh."""
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
    assert commands.lines("notes")[2:].count("given two") == 1
    _unchanged(commands, pulumi)
    commands.up(**_shape(commands, 2, "two"))
    assert "other gone" in commands.lines("notes")
    _unchanged(commands, pulumi)
    pulumi("destroy", "--yes")
    assert commands.lines("notes").count("other gone") == 2


def test_the_engine_sees_no_change_after_the_plugin(commands, pulumi):
    pulumi("stack init")
    commands.declare(**_shape(commands, 1, "one"))
    pulumi("up", "--yes")
    _unchanged(commands, pulumi)
    commands.declare(**_shape(commands, 1, "two"))
    pulumi("up", "--yes")
    assert (commands.folder / "there").read_text() == "two"
    _unchanged(commands, pulumi)
    commands.declare(**_shape(commands, 2, "two"))
    pulumi("up", "--yes")
    _unchanged(commands, pulumi)
    commands.done("destroy", "--yes")
    assert commands.lines("notes").count("given gone") == 2


def test_both_do_and_record_the_same(commands, pulumi):
    """Except for random values, and the output that only the engine keeps secret: `givenOut`."""

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
        (commands.folder / "there").unlink()
    ours, theirs = found
    for state in ours[:2]:
        for key in ("stdout", "stderr"):
            state["given"]["outputs"][key] = reveal(state["given"]["outputs"][key])
    assert ours == theirs
