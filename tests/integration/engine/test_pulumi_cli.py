"""The pulumi CLI and the engine take over each other's stacks, whole or cut off in the middle."""

import contextlib
import os
import shutil
import signal
import sys

import psutil
import pytest

from infra.operate import states
from tests import ran
from tests.cli import lacking
from tests.secret_hunt import finds
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.pulumi, pytest.mark.timeout(240)]

SECRETS = {"input": "canary-token", "output": "canary-made-secret"}
SHAPE = {
    "a": {"text": "1", "token": SECRETS["input"]},
    "b": {"text_of": "a"},
    "c": {"after": "b", "ignore_changes": ["kind"]},
    "g": {"group": True, "text": "x"},
}
CUT = {"a": {"text": "1"}, "b": {"text": "2", "after": "a"}}


def test_the_cli_sees_no_change_after_the_engine(engine, pulumi, tmp_path):
    engine.up(**SHAPE)
    pulumi("refresh", "--yes", "--expect-no-changes")
    engine.up(**SHAPE | {"a": {"text": "2", "kind": "other"}})
    pulumi("preview", "--expect-no-changes")
    assert SECRETS["output"] in pulumi("stack output", "--json", "--show-secrets")
    # As a user edits a state by hand.
    file = tmp_path / "state.json"
    pulumi("stack export", f"--file={file}")
    assert finds(SECRETS, [(file.name, file.read_bytes())]) == []
    pulumi("stack import", f"--file={file}")
    engine.done("preview", "--expect-no-changes")
    pulumi("destroy", "--yes")
    assert engine.files() == {}


def test_the_engine_sees_no_change_after_the_cli(engine, pulumi):
    engine.declare(**SHAPE)
    said = [pulumi("stack init"), pulumi("up", "--yes", "--diff")]
    engine.up("--refresh", "--expect-no-changes")
    engine.declare(**SHAPE | {"a": {"text": "2", "token": SECRETS["input"]}})
    said += [
        pulumi("up", "--yes", "--diff"),
        pulumi("stack", "--show-urns"),
        pulumi("stack output"),
    ]
    assert finds(SECRETS, enumerate(map(str.encode, said))) == []
    engine.done("preview", "--expect-no-changes")
    engine.done("destroy", "--yes")
    assert engine.files() == {}
    pulumi("stack rm", "--yes")
    assert engine.run("stack", "ls") == (0, "")


@pytest.fixture
def launch(engine, pulumi_cli, monkeypatch):
    """Runs the CLI as a target of the Makefile does."""
    for name, value in pulumi_cli.environment(engine.environment).items():
        monkeypatch.setenv(name, value)

    def run(*arguments):
        command = [sys.executable, "-m", "engine.launch", *arguments, "-s", "dev"]
        done = ran.run(command, cwd=engine.project)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.usefixtures("pulumi")
def test_make_runs_the_cli(engine, launch, tmp_path):
    """From nothing, with a plan."""
    engine.declare(**CUT)
    plan = tmp_path / "plan.json"
    code, output = launch("preview", "--plan", str(plan))
    assert code == 0, output
    assert "running the pulumi CLI" in output
    engine.declare(**CUT | {"c": {"text": "3"}})
    code, output = launch("up", "--plan", str(plan))
    assert code != 0
    assert "violates plan" in output
    engine.declare(**CUT)
    code, output = launch("up", "--plan", str(plan))
    assert code == 0, output
    # The reaper of machines that no stack knows reads states of other backends by the CLI.
    found = [*states._exports(engine.project, "gs://states")]
    assert [(project, stack, organization) for project, stack, _, organization in found] == [
        ("files", "dev", "organization")
    ]
    engine.done("preview", "--expect-no-changes")
    code, output = launch("destroy")
    assert code == 0, output
    assert engine.files() == {}


@pytest.fixture
def cut_off(engine, pulumi, pulumi_cli):
    """Bring a stack up by the CLI, which gets a signal once the first file is there."""

    def cut(number):
        engine.declare(**CUT)
        pulumi("stack init")
        slow = engine.environment | {"FILES_DELAY": "3"}
        up = ("up", "--yes", "--skip-preview")
        process = pulumi_cli.start(engine.project, slow, "dev", *up)
        with process:
            wait_for("a file, whose create has not returned", engine.files, 60)
            below = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(number)
            if number == signal.SIGKILL:  # as the loss of the machine
                for child in below:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            text, _ = process.communicate(timeout=60)
        assert process.returncode != 0
        return text

    return cut


@pytest.fixture(params=["engine", "cli"])
def settle(request, engine, pulumi):
    """Bring up the stack that was cut off, with either."""
    return engine.done if request.param == "engine" else pulumi


def test_either_goes_on_where_ctrl_c_ended_the_cli(engine, pulumi, cut_off, settle):
    cut_off(signal.SIGINT)
    assert engine.files() == {"a": "1"}
    settle("up", "--yes")
    assert engine.files() == {"a": "1", "b": "2"}
    engine.done("preview", "--refresh", "--expect-no-changes")
    pulumi("preview", "--expect-no-changes")


def test_the_engine_finds_what_a_killed_cli_had_made(engine, pulumi, cut_off):
    """Which the CLI does not: docs/engine.md."""
    cut_off(signal.SIGKILL)
    (pending,) = engine.latest()["pending_operations"]
    assert pending["type"] == "creating"
    output = engine.up()
    assert "was removed: that process is dead" in output
    assert engine.files() == {"a": "1", "b": "2"}
    pulumi("preview", "--expect-no-changes")


def test_the_cli_goes_on_where_a_kill_ended_the_engine(engine, pulumi, pulumi_cli):
    """It makes the unfinished resource again: docs/engine.md."""
    engine.declare(**CUT)
    engine.killed(engine.files, delay=3)  # the create of the file has not returned
    assert [each["type"] for each in engine.latest()["pending_operations"]] == ["creating"]
    up = ("up", "--yes", "--skip-preview")
    code, said = pulumi_cli.run(engine.project, engine.environment, "dev", *up)
    assert code != 0
    assert "the stack is currently locked" in said
    pulumi("cancel", "--yes")
    pulumi("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    pulumi(*up)
    made = sorted(path.name for path in engine.folder.glob("*.json"))
    assert made == ["a.0.json", "a.1.json", "b.0.json"]
    assert "pending_operations" not in engine.latest()
    engine.done("preview", "--refresh", "--expect-no-changes")


def test_a_cli_without_plugins_is_not_taken_for_one_that_runs_all_stacks(pulumi_cli, tmp_path):
    """Otherwise tests fail on a machine that cannot download them."""
    path = pulumi_cli.environment(os.environ)["PATH"]
    alone = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PULUMI_HOME": str(tmp_path / "home")}
    assert lacking(alone) == "the pulumi CLI is not on PATH"
    (tmp_path / "pulumi").symlink_to(shutil.which("pulumi", path=path))
    assert lacking(alone) == "the pulumi CLI on PATH lacks the plugins docker, command"
    (tmp_path / "pulumi-resource-command").symlink_to("/bin/true")
    plugin = tmp_path / "home/plugins/resource-docker-v5.1.2/pulumi-resource-docker"
    plugin.parent.mkdir(parents=True)
    plugin.symlink_to("/bin/true")
    assert lacking(alone) == ""
