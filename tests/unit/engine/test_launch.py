"""The inputs of `make up` for the pulumi CLI: the backend, and packs that it can run."""

import json
import sys
from unittest.mock import Mock

import pytest

from engine import launch
from engine.errors import EngineError
from engine.state import REFERENCE_TYPE
from trainyard.access import state_folder

RULES = """
from types import SimpleNamespace
RULES = [SimpleNamespace(name="no-rude", level="advisory", check=None)]
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project's folder, which is the current one, and a login."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("{name: test, runtime: python}")
    monkeypatch.chdir(folder)
    monkeypatch.delenv(state_folder.URL, raising=False)
    monkeypatch.delenv("PULUMI_CREDENTIALS_PATH", raising=False)
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "credentials.json").write_text('{"current": "file:///logged-in"}')
    return folder


def test_the_login_is_used_where_nothing_else_names_a_place(project, monkeypatch):
    login = {state_folder.URL: "file:///logged-in"}
    assert launch._backend(cli=True) == login
    monkeypatch.setenv(state_folder.URL, "")
    assert launch._backend(cli=True) == login  # the CLI ignores an empty one
    monkeypatch.setenv(state_folder.URL, "s3://states")
    assert launch._backend(cli=True) == {}
    monkeypatch.delenv(state_folder.URL)
    text = "{name: test, runtime: python, backend: {url: 'file:///own'}}"
    (project / "Pulumi.yaml").write_text(text)
    assert launch._backend(cli=False) == {}


def test_a_login_that_only_the_cli_can_read_is_left_to_it(project, tmp_path):
    (tmp_path / "home" / "credentials.json").write_text("an envelope")
    assert launch._backend(cli=True) == {}
    with pytest.raises(EngineError, match="Set PULUMI_BACKEND_URL to where the states are"):
        launch._backend(cli=False)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("command", "flag"), [("preview", "--save-plan"), ("up", "--plan")])
def test_both_engines_get_the_same_options(monkeypatch, command, flag):
    called = []
    monkeypatch.setattr(launch.os, "execvpe", lambda *call: called.append(call[1:]))
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "a")
    monkeypatch.setattr("sys.argv", ["launch", command, "-s", "lab", "--diff", "--plan", "a plan"])
    done = Mock(returncode=0, stdout='{"deployment": {}}')
    monkeypatch.setattr(launch.subprocess, "run", lambda *_, **__: done)
    for path in (None, "/bin/pulumi"):
        monkeypatch.setattr(launch.shutil, "which", lambda _, path=path: path)
        launch.main()
    (ours, environment), (theirs, of_the_cli) = called
    yes = ["--yes"] if command == "up" else []
    given = [command, "--stack", "lab", *yes, flag, "a plan", "--diff"]
    assert (ours, theirs) == ([sys.executable, "-m", "engine", *given], ["pulumi", *given])
    # Without it the CLI has no plans.
    assert "PULUMI_EXPERIMENTAL" not in environment
    assert of_the_cli["PULUMI_EXPERIMENTAL"] == "true"


@pytest.mark.usefixtures("project")
def test_only_a_preview_and_an_up_take_a_plan(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["launch", "refresh", "--plan", "a plan"])
    with pytest.raises(SystemExit):
        launch.main()
    assert "refresh takes no --plan" in capsys.readouterr().err


def test_a_pack_that_the_cli_cannot_run_is_one_message(project):
    pack = project / "pack"
    pack.mkdir()
    with pytest.raises(EngineError, match=r"pack is not a policy pack: its PulumiPolicy.yaml"):
        launch._check_pack(pack, "")
    about = pack / "PulumiPolicy.yaml"
    about.write_text("{runtime: {name: python, options: {virtualenv: own}}}")
    with pytest.raises(EngineError, match=r"has no .*own/bin/python: make its environment"):
        launch._check_pack(pack, "")
    (pack / "own" / "bin").mkdir(parents=True)
    (pack / "own" / "bin" / "python").touch()
    launch._check_pack(pack, "")
    about.write_text("runtime: nodejs")
    launch._check_pack(pack, "levels.json")  # we do not read its rules


def test_levels_of_rules_that_there_are_not_are_refused_before_the_cli_starts(project):
    pack = project / "pack"
    pack.mkdir()
    (pack / "PulumiPolicy.yaml").write_text("runtime: python")
    (pack / "rules.py").write_text(RULES)
    levels = project / "levels.json"
    levels.write_text(json.dumps({"no-rude": "mandatory"}))
    launch._check_pack(pack, str(levels))
    levels.write_text(json.dumps({"no-rudes": "mandatory"}))
    with pytest.raises(EngineError, match="no rule is named 'no-rudes'"):
        launch._check_pack(pack, str(levels))


def test_the_cli_ends_no_stack_that_another_uses(project, tmp_path, monkeypatch, capsys):  # F19
    monkeypatch.setenv(state_folder.URL, f"file://{tmp_path}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "correct horse")
    monkeypatch.setattr(launch.shutil, "which", lambda _: "/bin/pulumi")
    monkeypatch.setattr(launch.os, "execvpe", lambda *_: pytest.fail("the CLI was started"))
    states = tmp_path / ".pulumi" / "stacks" / "test"
    states.mkdir(parents=True)
    reference = {"urn": "urn:pulumi:staging::test::t::prod", "type": REFERENCE_TYPE}
    reference |= {"external": True, "inputs": {"name": "organization/test/prod"}}
    for name, resources in (("prod", []), ("staging", [reference]), ("damaged", None)):
        document = {"version": 3, "checkpoint": {"latest": {"resources": resources}}}
        text = json.dumps(document) if name != "damaged" else "{"
        (states / f"{name}.json").write_text(text)
    (states / "of-another-user.json").mkdir()  # which cannot be read, also by root
    monkeypatch.setattr("sys.argv", ["launch", "destroy", "-s", "prod"])
    with pytest.raises(SystemExit) as ended:
        launch.main()
    assert ended.value.code == 1
    assert "error: stack prod is in use by staging: " in capsys.readouterr().err
