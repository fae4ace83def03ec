"""Images: which are built and from what, and when one is rebuilt."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from cluster.dataset import FOLDER, MOUNT
from infra.places.containers.docker import DockerRuntime
from infra.settings import build_context
from infra.settings import images as names
from infra.settings.build_context import digest
from infra.settings.images import BUILT, PULLED, sources
from trainyard.access.variables import FOOD11_FOLDER

DOCKERFILE = """\
ARG TOOLS=tools:1
ARG BASE=base:1
FROM ${TOOLS} AS build
ARG VERSION
FROM ${BASE}
COPY --from=build /x /x
"""


@pytest.fixture
def contexts(tmp_path, monkeypatch) -> Path:
    """A folder with the images `first` and `second`."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Dockerfile").write_text(DOCKERFILE)
    monkeypatch.setattr(names, "CONTEXTS", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _folder(root: Path, name: str, files: dict[str, str]) -> Path:
    folder = root / name
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    return folder


BEFORE = {"Dockerfile": "FROM x", "a/run": "1"}


@pytest.mark.parametrize(
    "after",
    [
        {"Dockerfile": "FROM y", "a/run": "1"},
        {"Dockerfile": "FROM x", "a/run": "1", "b": ""},
        {"Dockerfile": "FROM x"},
        {"Dockerfile": "FROM x", "a/go": "1"},
        {"Dockerfile": "FROM x", "a/run1": ""},  # as long as before when joined
    ],
)
def test_another_content_is_another_image(tmp_path, after):
    before = digest(_folder(tmp_path, "before", BEFORE), {})
    assert digest(_folder(tmp_path, "after", after), {}) != before


def test_what_the_build_does_not_see_changes_nothing(tmp_path):
    folder = _folder(tmp_path, "before", BEFORE)
    before = digest(folder, {"A": "1", "B": "2"})
    other = _folder(tmp_path, "elsewhere", BEFORE)
    _folder(tmp_path, "elsewhere", {"a/__pycache__/run.pyc": "made by a test"})
    os.utime(other / "a" / "run", (0, 0))
    assert digest(other, {"B": "2", "A": "1"}) == before


def test_what_runs_and_build_arguments_count(tmp_path):
    folder = _folder(tmp_path, "before", BEFORE)
    found = {digest(folder, arguments) for arguments in ({}, {"A": "1"}, {"A": "2"}, {"B": "1"})}
    (folder / "a" / "run").chmod(0o755)
    assert len(found | {digest(folder, {})}) == 5


@pytest.mark.usefixtures("contexts")
def test_sources_are_named_by_the_settings_that_change_them():  # F31
    named = {"second": "mirror/second:2", "third": "third:3"}
    found = sources(named, {"BASE": "mirror/base:2", "VERSION": "1"}, ["first", "second"])
    assert found == {
        "buildArgs.BASE": "mirror/base:2",
        "buildArgs.TOOLS": "tools:1",
        "images.second": "mirror/second:2",
    }


@pytest.mark.parametrize("program", BUILT)
def test_our_own_images_can_be_built_from_other_bases(program):
    expected = {"buildArgs.BASE_IMAGE"} | (
        {"buildArgs.GO_IMAGE"} if program in ("minio", "versitygw") else set()
    )
    found = sources(PULLED, {}, [program])
    assert set(found) == expected
    assert all(found.values())
    # Nothing else is taken from anywhere.
    text = (names.CONTEXTS / program / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.startswith("FROM ")]
    assert len(lines) == len(names.BASE.findall(text)) == len(found)


@pytest.fixture
def declare(contexts, recorded) -> Callable[..., dict[str, dict[str, Any]]]:
    """Declare images; returns their inputs by name."""

    def run(
        programs: list[str], named: dict[str, str], arguments: dict[str, str]
    ) -> dict[str, dict[str, Any]]:
        @pulumi.runtime.test
        def program() -> None:
            runtime: Any = SimpleNamespace(
                _args=SimpleNamespace(
                    settings=SimpleNamespace(images=named, build_arguments=arguments)
                ),
                _images={},
                _after_node=pulumi.ResourceOptions(),
            )
            for each in programs:
                DockerRuntime._image(runtime, each)

        program()
        found = recorded.of_type("docker:index/remoteImage:RemoteImage")
        return {name: args.inputs for name, args in found.items()}

    return run


def test_an_image_is_declared_once_and_gets_the_arguments_that_it_declares(declare):
    found = declare(["first", "first"], {}, {"BASE": "base:2", "OTHER": "x"})
    (inputs,) = found.values()
    assert inputs["name"].startswith("trainyard/first:")
    assert inputs["build"]["context"] == "first"
    assert inputs["build"]["buildArgs"] == {"BASE": "base:2", "TOOLS": "tools:1"}
    assert inputs["keepLocally"] is True


def test_a_named_image_is_not_built(declare):
    found = declare(["first", "second"], {"second": "mirror/second:2"}, {})
    assert found["image-second"]["name"] == "mirror/second:2"
    assert "build" not in found["image-second"]
    assert "build" in found["image-first"]


def test_the_notebooks_image_holds_the_jobs(tmp_path, monkeypatch):  # D28
    checkout = tmp_path / "checkout"
    for name in ("train", "training", "trainyard"):
        shutil.copytree(names.ROOT / name, checkout / name, symlinks=True)
    monkeypatch.setattr(build_context, "ROOT", checkout)
    context = build_context.folder("jupyter", names.CONTEXTS)
    assert build_context.folder("jupyter", names.CONTEXTS) == context
    runtime = json.loads((context / "train/runtime.json").read_text())
    assert (context / "train" / runtime["pip"]).is_file()
    assert runtime["env_vars"] == {FOOD11_FOLDER: f"{MOUNT}/{FOLDER}"}
    assert (context / "train/training/food11/train_tune.py").is_file()
    assert (context / "train/trainyard/job.py").is_file()
    assert not [path for path in context.rglob("*") if path.is_symlink()]
    (checkout / "training/alexnet.py").write_text("")
    other = build_context.folder("jupyter", names.CONTEXTS)
    assert {context, other} == {*(checkout / "build" / "images").iterdir()}


def test_an_image_of_its_own_folder_is_built_there():
    assert build_context.folder("ray", names.CONTEXTS) == names.CONTEXTS / "ray"
