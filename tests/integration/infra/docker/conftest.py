"""A whole stack of containers on the Docker Engine of this machine."""

import random
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from infra.machines import docker_engine, local

ROOT = Path(__file__).resolve().parents[4]
TEST_IMAGES = {
    "prometheus": "trainyard-test/prometheus:latest",
    "grafana": "trainyard-test/grafana:latest",  # a stand-in: Grafana is not available offline
    "gateway": "trainyard-test/gateway:latest",
}
BUILD_ARGUMENTS = {"BASE_IMAGE": "trainyard-test/base:latest", "GO_IMAGE": "trainyard-test/go"}


def _settings(changes: dict[str, Any]) -> dict[str, Any]:
    """Settings; of images and build arguments a test changes only some."""
    images = {**TEST_IMAGES, **changes.get("images", {})}
    arguments = {**BUILD_ARGUMENTS, **changes.get("buildArgs", {})}
    return {**changes, "images": images, "buildArgs": arguments}


def failed(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command said that has failed."""
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert "Traceback" not in text
    return text


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder needs an Engine; without one each says so."""

    def is_here(item: pytest.Item) -> bool:
        return Path(__file__).parent in item.path.parents

    # Last, because the lab stays up to the end, and slows all other tests.
    items.sort(key=is_here)
    here = [item for item in items if is_here(item)]
    if not here or docker_engine.answers():
        return
    reason = "no Docker Engine answers (install docker.io and start dockerd)"
    for item in here:
        item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A stack of containers.

    Attributes:
        stack: for work on it.
        prefix: of the names of its containers.
        client: of the Engine.
    """

    stack: Any
    prefix: str
    client: Any

    def container(self, service: str) -> Any:
        return self.client.containers.get(self.prefix + service)

    def containers(self) -> dict[str, Any]:
        """All containers by service, stopped ones too."""
        found = self.client.containers.list(all=True, ignore_removed=True)
        return {
            each.name.removeprefix(self.prefix): each
            for each in found
            if each.name.startswith(self.prefix)
        }

    def volumes(self) -> list[str]:
        names = {volume.name for volume in self.client.volumes.list()}
        return sorted(name for name in names if name.startswith(self.identity))

    def networks(self) -> list[str]:
        return [net.name for net in self.client.networks.list() if net.name == self.identity]

    def change(self, **changes: Any) -> None:
        """Change settings."""
        self.stack.change(**_settings(changes))

    @property
    def identity(self) -> str:
        return f"{self.prefix}trainyard-test"

    def refused(self, command: str = "up", **environment: str) -> str:
        """Return the message of a command that has to fail."""
        both = {**self.stack.environment, **environment}
        stack = replace(self.stack, environment=both, said=[])
        return failed(stack.engine(command, "--yes", check=False))

    def nothing_is_there(self) -> bool:
        return not (self.containers() or self.networks() or self.volumes())

    def remove(self) -> None:
        """Remove all of it, in any state."""
        for container in self.containers().values():
            container.remove(force=True, v=True)
        for name in self.networks():
            self.client.networks.get(name).remove()
        for name in self.volumes():
            self.client.volumes.get(name).remove(force=True)


@pytest.fixture(scope="session")
def images() -> None:
    """The images that stand in for those of registries."""
    names = [name.rpartition("/")[2].partition(":")[0] for name in TEST_IMAGES.values()]
    subprocess.run(
        [sys.executable, ROOT / "tests" / "images" / "build.py", "base", "go", *names],
        check=True,
        cwd=ROOT,
    )


@pytest.fixture
def volume() -> Iterator[str]:
    """The name of a volume that the stack is to make."""
    yield (name := f"ty-dataset-{uuid.uuid4().hex[:12]}")
    for found in docker_engine.client().volumes.list(filters={"name": name}):
        found.remove(force=True)


@pytest.fixture(scope="session")
def make_lab(declare, images) -> Iterator[Callable[..., Lab]]:
    """Declare a lab that is not up yet; its leftovers are removed at the end.

    A data set without a volume of its own gets one that is removed with the lab.
    """
    made: list[tuple[Path, Lab]] = []
    client = docker_engine.client()

    def make(**changes: Any) -> Lab:
        base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
        owner = local.owner_part(f"{base.name}-{random.randrange(1000)}")
        prefix = f"{owner}-"
        settings: dict[str, Any] = {
            "runtime": "docker",
            "owner": owner,
            "workers": 2,
        }
        settings |= changes
        if "dataset" in settings:
            settings["dataset"] = {"volume": f"{prefix}trainyard-test-food11"} | settings["dataset"]
        stack = declare(base, **_settings(settings))
        lab = Lab(stack=stack, prefix=prefix, client=client)
        made.append((base, lab))
        return lab

    yield make
    for base, lab in made:
        lab.remove()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def make_small_lab(make_lab) -> Iterator[Callable[..., Lab]]:
    """Declare a lab of the services that cannot be left out; it is gone after the test."""
    made: list[Lab] = []

    def make(**changes: Any) -> Lab:
        made.append(lab := make_lab(workers=1, grafana=False, **changes))
        return lab

    yield make
    for lab in made:
        lab.remove()


@pytest.fixture(scope="session")
def lab(make_lab, pulumi_cli) -> Iterator[Lab]:
    """A lab that all tests of the session share; it must leave nothing behind.

    With MinIO, as the course has it; smaller labs have the default store. It comes up and ends
    under the pulumi CLI.
    """
    lab = make_lab(
        keepData=False,
        copied=True,
        cli=pulumi_cli,
        objectStore="minio",
        notebook=True,
        dataset={"generate": True},
        containerLimits={"grafana": {"processes": 128}},
    )
    lab.stack.pulumi("up", "--yes")
    yield lab
    lab.stack.pulumi("destroy", "--yes")
    assert lab.containers() == {}  # D56
    assert lab.networks() == []
    assert lab.volumes() == []
