"""The whole program under mocks."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra import outputs

ROOT = Path(__file__).resolve().parents[3]
Put = Callable[[Path, str, str], Path]


@pytest.fixture
def run(
    settings: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Run the program and return what it exports, resolved."""

    def run_program(**changes: object) -> dict[str, Any]:
        raw = {f"trainyard:{key}": value for key, value in settings(**changes).items()}
        monkeypatch.setenv("PULUMI_CONFIG", json.dumps(raw))
        exported: dict[str, Any] = {}
        monkeypatch.setattr(pulumi, "export", exported.__setitem__)
        resolved: dict[str, Any] = {}

        @pulumi.runtime.test
        def program() -> pulumi.Output[None]:
            runpy.run_path(str(ROOT / "infra" / "__main__.py"), run_name="__main__")
            return pulumi.Output.all(**exported).apply(resolved.update)

        program()
        return resolved

    return run_program


def test_exports_are_the_contract(run: Any, bare: Path, put_program: Put, recorded: Any) -> None:
    for name in ("minio", "prometheus"):
        put_program(bare, name, "exit 0")
    exported = run()
    names = {value for name, value in vars(outputs).items() if name.isupper()}
    assert set(exported) == names
    assert exported["dashboardUrl"] == "http://127.0.0.1:8265"
    assert exported["storageUrl"] == "s3://ray"
    assert exported["rayToken"] == "value of ray-token"
    assert exported["secretKey"] == "value of object-store-training"
    assert exported["pythonVersion"].count(".") == 1
    programs = recorded.of_type("process:Program")
    assert sorted(args.inputs["name"] for args in programs.values()) == [
        "minio",
        "prometheus",
        "ray-head",
        "ray-worker-0",
        "ray-worker-1",
    ]


@pytest.mark.usefixtures("bare")
def test_a_bare_machine_gets_ray_and_a_folder(run: Any, recorded: Any) -> None:
    exported = run(workers=1)
    assert exported["storageUrl"].startswith("file:///")
    assert exported["prometheusUrl"] == ""
    assert exported["objectStoreEndpoint"] == ""
    assert len(recorded.of_type("process:Program")) == 2


def test_no_secret_is_an_ordinary_input(  # F35
    run: Any, bare: Path, put_program: Put, recorded: Any
) -> None:
    for name in ("minio", "prometheus"):
        put_program(bare, name, "exit 0")
    run()
    secret = ("secrets", "rootPassword", "secretKey", "value")
    for args in recorded.created:
        shown = {key: value for key, value in args.inputs.items() if key not in secret}
        assert "value of " not in str(shown), args.name


def test_every_port_of_the_stack_is_checked_before_anything_starts(
    run: Any, bare: Path, put_program: Put, recorded: Any
) -> None:
    for name in ("minio", "prometheus"):
        put_program(bare, name, "exit 0")
    run()
    (supervisor,) = recorded.of_type("process:Supervisor").values()
    checked = {int(n) for numbers in supervisor.inputs["ports"].values() for n in numbers}
    opened = {
        int(port["number"])
        for program in recorded.of_type("process:Program").values()
        for port in program.inputs["ports"]
    }
    assert checked == opened


@pytest.mark.usefixtures("bare", "recorded")
def test_bad_settings_end_the_program_before_any_resource(run: Any, recorded: Any) -> None:  # F2
    with pytest.raises(pulumi.RunError, match="2 faults"):
        run(workers=-1, bucket="Ray")
    assert recorded.created == []
