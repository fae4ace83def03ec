"""Random programs, random operations, kills at random moments: real things match the state.

Every run tries other sequences; a failure prints how to repeat its own.
"""

import json
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests import quick
from tests.integration.engine.conftest import EngineProcess

pytestmark = pytest.mark.integration

EXAMPLES = 15
STEPS = 8  # operations of an example, about 0.2 s each

texts = st.sampled_from(["1", "2", "3"])
kinds = st.sampled_from(["plain", "other", "exclusive-1", "exclusive-2"])
# Some operations are killed: at one of the moments just before and after a file changes.
moments = st.one_of(st.just(0), st.integers(1, 40))


@st.composite
def shapes(draw):
    """A program: some files in some order, later ones depending on earlier ones."""
    shape = {}
    for name in draw(st.permutations("abcg"))[: draw(st.integers(0, 4))]:
        spec = {"text": draw(texts), "kind": draw(kinds)}
        if name == "g":
            spec |= {"group": True}
        earlier = [other for other in shape if other != "g"]
        if earlier and draw(st.booleans()):
            spec |= {draw(st.sampled_from(["text_of", "after"])): draw(st.sampled_from(earlier))}
        shape[name] = spec
    return shape


class Engine(RuleBasedStateMachine):
    server = None  # runs the commands

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="trainyard-engine-"))
        environment = {
            "PULUMI_CONFIG_PASSPHRASE": "x",
            "PULUMI_BACKEND_URL": f"file://{self.root / 'backend'}",
            "COLUMNS": "200",
            # Few also where the pulumi CLI is: it reads none of these.
            quick.VARIABLE: str(quick.FEW),
        }
        self.stack = EngineProcess(self.root, environment, self.server)
        self.drifted = False
        self.shape = {}
        self.declare({"a": {"text": "1"}})
        self.run("up")

    # What may happen.

    @rule(shape=shapes(), refresh=st.booleans(), moment=moments)
    def up(self, shape, refresh, moment):
        self.declare(shape)
        self.operate("up", refresh, moment)

    @rule(refresh=st.booleans(), moment=moments)
    def up_again(self, refresh, moment):
        self.operate("up", refresh, moment)

    @rule(moment=moments)
    def refresh(self, moment):
        self.run("refresh", moment=moment)

    @rule(refresh=st.booleans(), moment=moments)
    def destroy(self, refresh, moment):
        if self.run("destroy", *["--refresh"] * refresh, moment=moment):
            assert self.stack.files() == {}
            assert self.stack.resources() == []

    @rule(data=st.data(), gone=st.booleans())
    def tamper(self, data, gone):
        """Somebody changes or removes a file behind the engine's back."""
        paths = sorted(self.stack.folder.glob("*.json"))
        # A file that is not in the state, and may not exist, must not be changed yet.
        paths = [path for path in paths if path.name in self.ids()]
        if paths:
            path = data.draw(st.sampled_from(paths))
            content = json.loads(path.read_text())
            path.unlink()
            if not gone:
                path.write_text(json.dumps(content | {"text": "tampered"}))
            self.drifted = True

    # What must hold.

    @invariant()
    def every_real_thing_is_in_the_state(self):
        pending = self.stack.latest().get("pending_operations", [])
        creating = {
            operation["resource"]["urn"].rpartition("::")[2]
            for operation in pending
            if operation["type"] == "creating"
        }
        known = self.ids()
        for path in self.stack.folder.glob("*.json"):
            assert path.name in known or path.name.partition(".")[0] in creating, path.name
        deleting = {
            operation["resource"]["id"] for operation in pending if operation["type"] == "deleting"
        }
        if not self.drifted:
            there = {path.name for path in self.stack.folder.glob("*.json")}
            assert known - deleting <= there

    def operate(self, command, refresh, moment):
        refresh = refresh or self.drifted
        if self.run(command, *["--refresh"] * refresh, moment=moment):
            self.drifted = False
            names = {
                f"{name}-file" if "group" in spec else name: spec
                for name, spec in self.shape.items()
            }
            found = self.stack.contents()
            assert set(found) == set(names)
            for name, spec in names.items():
                assert found[name]["kind"] == spec.get("kind", "plain")
                assert "text_of" in spec or found[name]["text"] == spec["text"]
            assert "pending_operations" not in self.stack.latest()
            urns = [entry["urn"] for entry in self.stack.resources()]
            assert len(urns) == len(set(urns))
            self.run("preview", "--refresh", "--expect-no-changes")

    def run(self, command, *arguments, moment=0):
        """True when the command came to its end, which it does unless it is killed."""
        arguments = [*arguments, *["--yes"] * (command != "preview")]
        code, output = self.stack.run(command, *arguments, moment=moment)
        self.stack.end()
        if moment and code == -signal.SIGKILL:
            return False
        assert code == 0, output
        return True

    def declare(self, shape):
        self.shape = shape
        self.stack.declare(**shape)

    def ids(self):
        """Names of the files that the state has; one pending replacement was deleted already."""
        return {
            entry["id"]
            for entry in self.stack.resources()
            if entry["type"].endswith("files:File") and not entry.get("pendingReplacement")
        }

    def teardown(self):
        try:
            self.run("destroy")
            assert list(self.stack.folder.glob("*.json")) == []
        finally:
            shutil.rmtree(self.root)


@pytest.mark.timeout(240)
def test_whatever_happens_the_state_is_what_is_there(engines, monkeypatch):  # F12 F20
    monkeypatch.setattr(Engine, "server", engines)
    run_state_machine_as_test(
        Engine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=False,
            database=None,
            print_blob=True,
            # A sequence is short, and making it shorter would take minutes.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
