"""What runs where a program is missing, and what the user is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra import tools

Put = Callable[[Path, str, str], Path]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []
    for level in ("info", "warn"):
        monkeypatch.setattr(
            pulumi.log, level, lambda text, kind=level: messages.append(f"{kind}: {text}")
        )
    return messages


def test_everything_on_path(bare: Path, put_program: Put, told: list[str]) -> None:
    minio = put_program(bare, "minio", "exit 0")
    prometheus = put_program(bare, "prometheus", "exit 0")
    found = tools.find("auto")
    assert found.paths["minio"] == str(minio)
    assert found.paths["prometheus"] == str(prometheus)
    assert Path(str(found.paths["ray"])).exists(), "of this environment, whatever PATH says"
    assert told == []


@pytest.mark.usefixtures("bare")
def test_auto_falls_back_to_a_folder_and_says_so(told: list[str]) -> None:
    found = tools.find("auto")
    assert not found.minio
    assert told[0].startswith("info: No object store: results go to a folder")
    assert "install Go 1.24 or later" in told[0]


@pytest.mark.usefixtures("bare")
def test_minio_asked_for_and_not_to_be_had_is_an_error() -> None:
    with pytest.raises(pulumi.RunError, match=r"objectStore = 'minio'.* install Go 1\.24"):
        tools.find("minio")


def test_directory_asks_for_no_minio(bare: Path, put_program: Put, told: list[str]) -> None:
    put_program(bare, "minio", "exit 0")
    assert not tools.find("directory").minio
    assert not [line for line in told if "object store" in line]


@pytest.mark.usefixtures("bare")
def test_without_prometheus_monitoring_is_off_and_the_user_warned(told: list[str]) -> None:
    assert not tools.find("directory").prometheus
    assert told[-1].startswith("warn: Monitoring is off")
    assert "prometheus.io/download" in told[-1]


def test_go_builds_minio_as_a_resource(bare: Path, put_program: Put, recorded: Any) -> None:
    put_program(bare, "go", "echo go version go1.26.8 linux/amd64")

    @pulumi.runtime.test
    def program() -> pulumi.Output[Any]:
        return pulumi.Output.from_input(tools.find("minio").paths["minio"])

    program()
    (built,) = recorded.of_type(":GoTool").values()
    assert built.inputs["version"].startswith("v0.0.0-2026")
    assert built.inputs["path"].startswith(str(bare.parent / "cache"))
