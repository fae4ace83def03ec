"""Settings as an engine passes them on, a machine with nothing on it, and Pulumi's mocks."""

import functools
import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks

from engine.command.provider import CommandProvider
from engine.docker.provider import DockerProvider
from engine.goal import goal_of
from engine.values import reveal
from infra.machines import bundle, docker_engine
from infra.machines.accelerators import Device
from infra.machines.local import LocalHost
from infra.settings import config

PLUGINS = ("docker:", "command:")
NO_IMAGE = "Container.image has to be given"  # mocks draw no IDs of images
ROOT = Path(__file__).resolve().parents[3]
PACK = bundle._archive


@pytest.fixture(scope="session")
def schema() -> dict[str, dict[str, Any]]:
    config: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    return config


@pytest.fixture
def settings(schema) -> Callable[..., dict[str, str]]:
    """Raw settings: the defaults, and what a test changes."""

    def build(**changes: object) -> dict[str, str]:
        values = {key: entry["default"] for key, entry in schema.items()} | changes
        return {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in values.items()
        }

    return build


@pytest.fixture
def host() -> LocalHost:
    return LocalHost(cpus=8, memory_mib=32768)


@pytest.fixture
def bare(tmp_path, monkeypatch) -> Path:
    """A machine with nothing on PATH and an empty cache; returns the folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return folder


@pytest.fixture
def put_program() -> Callable[[Path, str, str], Path]:
    """Put a shell script somewhere as a program."""

    def put(folder: Path, name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return put


@pytest.fixture
def go(bare, put_program) -> None:
    """A Go on PATH, which builds the object store."""
    put_program(bare, "go", "echo go version go1.26.8 linux/amd64")


@functools.cache
def _packed(content: tuple[tuple[str, bytes], ...]) -> bytes:
    return PACK(dict(content))


def _archive(content: dict[str, bytes]) -> bytes:
    """An archive for hosts, compressed once for all tests."""
    return _packed(tuple(content.items()))


@pytest.fixture
def run(settings, recorded, requests, monkeypatch) -> Callable[..., dict[str, Any]]:
    """Run the program under mocks and return what it exports, resolved.

    Records of an earlier run are dropped. Whatever it asks for, the embedded engine supports.
    """
    monkeypatch.setattr(bundle, "_archive", _archive)

    def run_program(**changes: object) -> dict[str, Any]:
        recorded.created.clear()
        chosen = {"runtime": "process"} | changes
        raw = {f"trainyard:{key}": value for key, value in settings(**chosen).items()}
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(raw))
        exported: dict[str, Any] = {}
        monkeypatch.setattr(pulumi, "export", exported.__setitem__)
        resolved: dict[str, Any] = {}

        @pulumi.runtime.test
        def program() -> pulumi.Output[None]:
            runpy.run_path(str(ROOT / "infra" / "__main__.py"), run_name="__main__")
            return pulumi.Output.all(**exported).apply(resolved.update)

        program()
        for request in requests:
            goal = goal_of(request, project="trainyard", stack="test")
            if goal.type.startswith(PLUGINS):
                kind = DockerProvider if goal.type.startswith("docker:") else CommandProvider
                provider = kind(goal.type, lambda level, text: None)
                faults = provider.check({}, reveal(goal.inputs))[1]
                assert set(faults) <= {NO_IMAGE}, (goal.urn, faults)
        return resolved

    return run_program


@pytest.fixture
def warnings(monkeypatch) -> list[str]:
    """What the program warns of."""
    found: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", lambda text, *_: found.append(text))
    return found


@pytest.fixture
def requests(monkeypatch) -> list[Any]:
    """The requests of the program to the engine, with the options of its resources."""
    found: list[Any] = []
    register = mocks.MockMonitor.RegisterResource

    def record(self: mocks.MockMonitor, request: Any) -> Any:
        found.append(request)
        return register(self, request)

    monkeypatch.setattr(mocks.MockMonitor, "RegisterResource", record)
    return found


@pytest.fixture
def engine(bare, monkeypatch) -> Path:
    """A machine with a Docker Engine that has NVIDIA's toolkit, and no device."""
    monkeypatch.setattr(docker_engine, "answers", lambda: True)
    info = {"ID": "engine", "Runtimes": {"nvidia": {}, "runc": {}}}
    info |= dict.fromkeys(("MemoryLimit", "SwapLimit", "PidsLimit"), True)
    monkeypatch.setattr(docker_engine, "info", lambda *_: info)
    return bare


def devices(count: int, kind: str = "nvidia") -> list[Device]:
    return [
        Device(
            index=i,
            kind=kind,
            name="NVIDIA A10",
            uuid=f"GPU-{i}",
            path="" if kind == "nvidia" else f"/dev/dri/renderD{128 + i}",
        )
        for i in range(count)
    ]


def faults(settings: dict[str, str], host: LocalHost, stack: str = "dev") -> str:
    """Have settings refused; return the message."""
    with pytest.raises(pulumi.RunError) as raised:
        config.parse(settings, host, stack)
    return str(raised.value)


def is_named(key: str, bound: str, settings: dict[str, str], host: LocalHost) -> None:
    """Have a bad setting refused, which one line names with its value, bound and next action."""
    message = faults(settings, host)
    lines = [line for line in message.splitlines() if line.startswith(f"  - {key} = ")]
    assert len(lines) == 1, message
    assert bound in lines[0]
    assert re.search(r"; \w+", lines[0]), "no next action"
