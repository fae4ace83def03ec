"""Settings as an engine passes them on, a machine with nothing on it, and Pulumi's mocks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.hosts.local import LocalHost

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def schema() -> dict[str, dict[str, Any]]:
    config: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    return config


@pytest.fixture
def settings(schema: dict[str, dict[str, Any]]) -> Callable[..., dict[str, str]]:
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
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
