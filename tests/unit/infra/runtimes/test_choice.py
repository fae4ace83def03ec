"""Which runtime a stack gets that leaves it open, and that it keeps it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.hosts import docker_engine
from infra.runtimes import choice
from infra.runtimes.choice import ChoiceProvider
from infra.service.life import ServiceError


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Choose on a machine with or without an Engine."""

    def run(setting: str, path: Path, *, engine: bool) -> str:
        monkeypatch.setattr(docker_engine, "answers", lambda: engine)
        chosen: list[str] = []

        @pulumi.runtime.test
        def program() -> None:
            chosen.append(choice.choose(setting, path))

        program()
        return chosen[0]

    return run


def _kept(recorded: Any) -> list[dict[str, Any]]:
    return [args.inputs for args in recorded.of_type("docker:Choice").values()]


@pytest.mark.parametrize(("engine", "expected"), [(True, "docker"), (False, "process")])
def test_auto_takes_docker_when_an_engine_answers(
    choose: Any, recorded: Any, tmp_path: Path, engine: bool, expected: str
) -> None:
    path = tmp_path / "runtime"
    assert choose("auto", path, engine=engine) == expected
    (kept,) = _kept(recorded)
    assert (kept["path"], kept["runtime"]) == (str(path), expected)


@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize("chosen", ["docker", "process"])
def test_it_stays_what_was_chosen_whatever_the_engine_does(
    choose: Any, recorded: Any, tmp_path: Path, chosen: str, engine: bool
) -> None:
    path = tmp_path / "runtime"
    path.write_text(chosen)
    assert choose("auto", path, engine=engine) == chosen
    assert [kept["runtime"] for kept in _kept(recorded)] == [chosen]


@pytest.mark.parametrize("setting", ["docker", "process"])
def test_what_is_set_is_neither_looked_for_nor_kept(
    choose: Any, recorded: Any, tmp_path: Path, setting: str
) -> None:
    (tmp_path / "runtime").write_text("process" if setting == "docker" else "docker")
    assert choose(setting, tmp_path / "runtime", engine=setting == "process") == setting
    assert _kept(recorded) == []


@pytest.mark.parametrize("content", ["", "podman", "docker\nprocess"])
def test_a_damaged_file_is_told(choose: Any, tmp_path: Path, content: str) -> None:
    path = tmp_path / "runtime"
    path.write_text(content)
    with pytest.raises(pulumi.RunError) as raised:
        choose("auto", path, engine=True)
    assert str(raised.value).startswith(f"{path} holds {content!r}, must be docker or process: ")


def test_the_file_comes_and_goes_with_the_choice(tmp_path: Path) -> None:
    path = tmp_path / "stacks" / "dev"
    props = {"path": str(path), "runtime": "docker"}
    made = ChoiceProvider().create(props)
    assert path.read_text() == "docker"
    assert ChoiceProvider().read(made.id, props).id == made.id
    ChoiceProvider().delete(made.id, props)
    ChoiceProvider().delete(made.id, props)
    assert not path.exists()
    assert ChoiceProvider().read(made.id, props).id == ""


def test_a_home_that_cannot_be_written_is_one_message() -> None:  # F58
    path = "/sys/.local/share/trainyard/dev.runtime"  # where root may not write either
    with pytest.raises(ServiceError, match=r"dev\.runtime \(.*\): make that folder writable, set"):
        ChoiceProvider().create({"path": path, "runtime": "docker"})


def test_another_runtime_is_another_choice() -> None:
    old = {"path": "/x", "runtime": "docker"}
    assert ChoiceProvider().diff("/x", old, {**old, "runtime": "process"}).replaces == ["runtime"]
    assert not ChoiceProvider().diff("/x", old, dict(old)).changes
