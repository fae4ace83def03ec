"""A stack of its own for a benchmark: own folders or containers, own free ports, nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster import services
from engine.project import Project
from engine.state import Backend, State
from infra.hosts import docker_engine

ROOT = Path(__file__).parents[1]
PORTS = [key for key, port in services.PORTS.items() if not port.each_node]
AGENT_PORTS = 4  # the head's and up to three workers', one after another
PASSPHRASE = "benchmark"  # noqa: S105 of a stack that lives for a minute
# A variable that says that a registry is reached: images are then those of a stack by default.
# Without it they are those of tests/images, which need none.
REGISTRY = "TRAINYARD_BENCH_REGISTRY"
TEST_IMAGES = {
    name: f"trainyard-test/{name}:latest" for name in ("prometheus", "grafana", "gateway")
}
TEST_BUILD_ARGS = {
    "BASE_IMAGE": "trainyard-test/base:latest",
    "GO_IMAGE": "trainyard-test/go",
}


class ScratchStack:
    """The checkout's program as a stack `bench`, in a project folder of links beside its settings.

    Args:
        folder: an empty folder.
        runtime: process or docker.
        settings: more of the stack's settings.

    Attributes:
        prefix: of the names of its containers.
    """

    name = "bench"

    def __init__(self, folder: Path, runtime: str, settings: dict[str, Any]) -> None:
        self.prefix = f"{folder.name}-"
        self.project = folder / "project"
        self.project.mkdir()
        for entry in ("Pulumi.yaml", "infra", ".venv"):
            (self.project / entry).symlink_to(ROOT / entry)
        first = _free_row(len(PORTS) + AGENT_PORTS)
        config: dict[str, Any] = {"runtime": runtime, "agentPort": first + len(PORTS)}
        config |= {port: first + offset for offset, port in enumerate(PORTS)}
        if runtime == "process":
            config |= {"stateDir": str(folder / "s"), "dataDir": str(folder / "data")}
        else:
            config |= {"containerPrefix": self.prefix, "keepData": False}
        if runtime == "docker" and not os.environ.get(REGISTRY):
            config |= {"images": TEST_IMAGES, "buildArgs": TEST_BUILD_ARGS}
        config |= settings
        document = {"config": {f"trainyard:{key}": value for key, value in config.items()}}
        (self.project / f"Pulumi.{self.name}.yaml").write_text(yaml.safe_dump(document))
        (folder / "backend").mkdir()
        self.environment = os.environ | {
            "PULUMI_BACKEND_URL": f"file://{folder / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }

    def command(self, *arguments: str) -> list[str]:
        """The engine's command line."""
        project = ["-C", str(self.project)]
        return [sys.executable, "-m", "engine", *project, *arguments, "-s", self.name]

    def engine(self, *arguments: str) -> None:
        """Run the engine.

        Raises:
            subprocess.CalledProcessError: it failed; its output is shown.
        """
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.stderr.write(done.stdout)
            done.check_returncode()

    def outputs(self) -> dict[str, Any]:
        """The outputs of the stack, secrets in the clear."""
        command = self.command("output", "--json", "--show-secrets")
        done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, check=True)
        return dict(json.loads(done.stdout))

    def plain_submit(self, private: Path, *options: str) -> tuple[list[str], dict[str, str]]:
        """Ray's own `ray job submit` to the stack's cluster: the command and its environment.

        Args:
            private: a folder for the file with the token, of which nothing is uploaded.
            options: of the command, and what the job runs.
        """
        outputs = self.outputs()
        token = private / "token"
        token.touch(mode=0o600)
        token.write_text(outputs["rayToken"])
        ray = [str(ROOT / ".venv/bin/ray"), "job", "submit", "--address", outputs["dashboardUrl"]]
        known = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        return [*ray, *options], os.environ | known

    def state(self) -> State:
        """The stack's state, secrets in the clear."""
        project = Project.find(self.project)
        backend = Backend(self.environment["PULUMI_BACKEND_URL"], self.project)
        return backend.load(project.name, self.name, PASSPHRASE)


@contextlib.contextmanager
def scratch_stack(runtime: str = "process", **settings: Any) -> Iterator[ScratchStack]:
    """A stack that is destroyed, and whose folders are removed, when the body ends.

    Args:
        runtime: process or docker.
        settings: more of the stack's settings.
    """
    folder = Path(tempfile.mkdtemp(prefix="ty-bench-"))
    stack = ScratchStack(folder, runtime, settings)
    try:
        yield stack
    finally:
        if stack.state().resources:
            stack.engine("destroy", "--yes")
        shutil.rmtree(folder, ignore_errors=True)


def docker_is_missing() -> str:
    """Why no stack of containers can be made here; "" when one can."""
    if not shutil.which("docker"):
        return "no docker on PATH (install docker.io)"
    if not docker_engine.answers():
        return "no Docker Engine answers (install docker.io and start dockerd)"
    return ""


def make_images() -> None:
    """Have the images of tests that stand in for those of registries, unless REGISTRY is set."""
    if os.environ.get(REGISTRY):
        return
    build = [sys.executable, str(ROOT / "tests" / "images" / "build.py"), "base", "go"]
    subprocess.run([*build, *TEST_IMAGES], cwd=ROOT, check=True)


def _free_row(count: int) -> int:
    """First of some consecutive free ports.

    Not of those that the kernel serves everybody from: Ray's nodes open dozens of these, and would
    now and then take one before the service that it was meant for.
    """
    for first in random.sample(range(10000, 32000, count), k=100):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError(f"no {count} consecutive free ports between 10000 and 32000")
