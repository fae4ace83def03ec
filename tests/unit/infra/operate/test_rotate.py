"""The settings that `make rotate` writes, its refusals, and the effect on the next `up`."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.operate import rotate
from tests import quick, ran
from trainyard.access import settings_file

SECRET = "pulumi-python:dynamic/cluster:Secret"
PROGRAM = """
import pulumi
from cluster import secret
secret.rotated = pulumi.Config().get_object("rotated") or {}
for name in ("ray-token", "grafana-admin", "object-store-root", "object-store-root-key"):
    drawn = secret.Secret(name, 10)
    pulumi.export(name, drawn.value)
    pulumi.export(f"former {name}", drawn.former)
"""


def _entry(name: str, kind: str = SECRET, **more: Any) -> dict[str, Any]:
    return {"urn": f"urn:pulumi:dev::trainyard::{kind}::{name}", "type": kind, **more}


def _using(name: str, kind: str, *secrets: str) -> dict[str, Any]:
    used = [_entry(each)["urn"] for each in secrets]
    return _entry(name, kind, propertyDependencies={"secrets": used})


RESOURCES = [
    _entry("ray-token", outputs={"generation": 2.0}),
    _entry("grafana-admin"),
    _entry("serve-token", delete=True),
    _entry("object-store-root-key", outputs={"generation": 1}),
    _entry("object-store-root"),
    _entry("object-store-training"),
    _entry("kubernetes-owner"),
    _using("local-ray-head", "pulumi-python:dynamic/process:Program", "ray-token"),
    _using("local-grafana", "docker:index/container:Container", "grafana-admin"),
    _using("ray-guard", "pulumi-python:dynamic/kubernetes:RecreateGuard", "object-store-training"),
]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project whose stack dev has RESOURCES, and a setting with a comment."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "a")
    (tmp_path / "Pulumi.yaml").write_text(
        "name: trainyard\nruntime: python\nmain: program/\n"
        "config:\n  rotated:\n    type: object\n    default: {}\n"
    )
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").write_text(PROGRAM)
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  trainyard:rotated: {} # mine\n")
    state = tmp_path / ".pulumi" / "stacks" / "trainyard" / "dev.json"
    state.parent.mkdir(parents=True)
    latest = {"resources": RESOURCES}
    state.write_text(json.dumps({"version": 3, "checkpoint": {"latest": latest}}))
    return tmp_path


@pytest.fixture
def asked(monkeypatch) -> list[list[str]]:
    """The calls of `trainyard.client.losses`, which permits everything without `--refuse`."""
    found: list[list[str]] = []
    run = subprocess.run

    def stand_in(command: list[str], **more: Any) -> Any:
        if "trainyard.client.losses" not in command:
            return run(command, **more)
        found.append(command[command.index("trainyard.client.losses") + 1 :])
        return subprocess.CompletedProcess(command, int("--refuse" in command))

    monkeypatch.setattr(subprocess, "run", stand_in)
    return found


def _rotated(project: Path, stack: str = "dev") -> Any:
    settings = settings_file.read(project / f"Pulumi.{stack}.yaml")
    return settings["config"].get("trainyard:rotated")


def _rotate(project: Path, *options: str, stack: str = "dev") -> int:
    return rotate.main(["-C", str(project), "-s", stack, *options])


def test_a_stack_without_a_name_lists_its_secrets(project, capsys):  # F43
    assert _rotate(project) == 0
    assert capsys.readouterr().out.splitlines() == [
        "grafana-admin: rotated 0 times",
        "object-store-root: rotated 0 times",  # one key of two: an `up` ended in between
        "object-store-training: rotated 0 times; restarts Ray's nodes, not while jobs run",
        "ray-token: rotated 2 times; restarts Ray's nodes, not while jobs run",
    ]
    assert _rotated(project) == {}


def test_a_rotation_is_written_down_once(project, asked):  # F43
    for _ in range(2):  # no `up` has drawn it yet, so it counts once
        assert _rotate(project, "--secret", "grafana-admin") == 0
        assert _rotated(project) == {"grafana-admin": 1}
    assert "# mine" in (project / "Pulumi.dev.yaml").read_text()
    assert asked == []  # no job is lost to it
    # Settings that were lost count on from the state.
    assert _rotate(project, "--secret", "ray-token", "--force") == 0
    assert _rotated(project) == {"grafana-admin": 1, "ray-token": 3}


@pytest.mark.parametrize("name", ["ray-token", "object-store-training"])
def test_jobs_that_would_be_lost_are_asked_for_before_anything_changes(  # F43
    project, asked, name, capfd
):
    assert _rotate(project, "--secret", name) == 1
    assert f"error: {name} restarts Ray's head. Nothing was changed" in capfd.readouterr().err
    assert _rotated(project) == {}
    assert _rotate(project, "--secret", name, "--force") == 0
    assert _rotate(project, "--secret", name, "--force", "--yes") == 0
    assert asked == [["-s", "dev", *more] for more in (["--refuse"], [], ["--yes"])]


@pytest.mark.parametrize("name", ["ray_token", "serve-token", "object-store-root-key", "a b'c"])
def test_a_wrong_name_is_told_with_the_right_ones(project, name, capsys):  # F43
    assert _rotate(project, "--secret", name) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: stack 'dev' has no secret ")
    assert said.count("\n") == 1
    assert "it has: grafana-admin, object-store-root, object-store-training, ray-token\n" in said
    assert _rotated(project) == {}


def test_a_stack_that_is_not_up_has_no_secrets(project, capsys):
    assert _rotate(project, "--secret", "ray-token", stack="lab") == 1
    assert "stack 'lab' is not up: run `make up STACK=lab` first" in capsys.readouterr().err
    assert not (project / "Pulumi.lab.yaml").exists()


@pytest.fixture
def engine(project) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        command = [sys.executable, *quick.module("engine"), "-C", str(project), *arguments]
        return ran.output([*command, "-s", "test"])

    return run


def test_an_up_draws_what_was_rotated_and_nothing_else(project, engine):  # F43
    def outputs() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(engine("output", "--json", "--show-secrets"))
        return found

    (project / "Pulumi.test.yaml").write_text("config: {}\n")
    engine("up", "--yes")
    first = outputs()
    assert first.get("former ray-token") is None
    state = project / ".pulumi" / "stacks" / "trainyard" / "test.json"
    assert "generation" not in state.read_text()  # a state of before has none either
    for name in ("ray-token", "object-store-root"):
        assert _rotate(project, "--secret", name, "--force", stack="test") == 0
    assert "update" in engine("preview")
    engine("up", "--yes")
    second = outputs()
    drawn = {"ray-token", "object-store-root", "object-store-root-key"}
    assert {name for name in first if "former" not in name and first[name] != second[name]} == drawn
    assert {name: second[f"former {name}"] for name in drawn} == {n: first[n] for n in drawn}
    assert second["ray-token"] not in state.read_text()
    assert first["ray-token"] not in state.read_text()
    # Settings that were lost, as in another checkout, draw nothing.
    (project / "Pulumi.test.yaml").write_text("config: {}\n")
    engine("up", "--yes", "--expect-no-changes")
    assert outputs()["ray-token"] == second["ray-token"]
