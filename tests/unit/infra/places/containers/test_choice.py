"""Which runtime a stack gets that leaves it open, and that it keeps it."""

from collections.abc import Callable
from pathlib import Path

import pulumi
import pytest

from infra.machines import docker_engine
from infra.places.containers import choice
from infra.places.containers.choice import ChoiceProvider
from node.life import ServiceError


@pytest.fixture
def choose(monkeypatch) -> Callable[..., str]:
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


@pytest.mark.parametrize(
    ("setting", "before", "engine", "expected", "kept"),
    [
        ("auto", "", True, "docker", True),
        ("auto", "", False, "process", True),
        # It stays what was chosen, whatever the Engine does.
        ("auto", "docker", False, "docker", True),
        ("auto", "process", True, "process", True),
        # What is set is neither looked for nor kept.
        ("docker", "process", False, "docker", False),
        ("process", "docker", True, "process", False),
    ],
)
def test_auto_is_chosen_once_and_what_is_set_is_taken(
    choose, recorded, tmp_path, setting, before, engine, expected, kept
):
    path = tmp_path / "runtime"
    if before:
        path.write_text(before)
    assert choose(setting, path, engine=engine) == expected
    declared = [args.inputs for args in recorded.of_type("docker:Choice").values()]
    assert [(each["path"], each["runtime"]) for each in declared] == [(str(path), expected)] * kept


@pytest.mark.parametrize("content", ["", "podman", "docker\nprocess"])
def test_a_damaged_file_is_told(choose, tmp_path, content):
    path = tmp_path / "runtime"
    path.write_text(content)
    with pytest.raises(pulumi.RunError) as raised:
        choose("auto", path, engine=True)
    assert str(raised.value).startswith(f"{path} holds {content!r}, must be docker or process: ")


def test_the_file_comes_and_goes_with_the_choice(tmp_path):
    path = tmp_path / "stacks" / "dev"
    props = {"path": str(path), "runtime": "docker"}
    made = ChoiceProvider().create(props)
    assert path.read_text() == "docker"
    assert ChoiceProvider().read(made.id, props).id == made.id
    ChoiceProvider().delete(made.id, props)
    ChoiceProvider().delete(made.id, props)
    assert not path.exists()
    assert ChoiceProvider().read(made.id, props).id == ""


def test_a_home_that_cannot_be_written_is_one_message():  # F58
    path = "/sys/.local/share/trainyard/dev.runtime"  # where root may not write either
    with pytest.raises(ServiceError, match=r"dev\.runtime \(.*\): make that folder writable, set"):
        ChoiceProvider().create({"path": path, "runtime": "docker"})


def test_another_runtime_is_another_choice():
    old = {"path": "/x", "runtime": "docker"}
    assert ChoiceProvider().diff("/x", old, {**old, "runtime": "process"}).replaces == ["runtime"]
    assert not ChoiceProvider().diff("/x", old, dict(old)).changes
