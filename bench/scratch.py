"""A stack for a benchmark alone: own folders or containers, own free ports, no leftovers."""

import contextlib
import json
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import yaml

from bench.measure import ROOT, FailedError, SkippedError, record, run
from cluster import services
from engine.project import Project
from engine.state import Backend, State
from infra.machines import docker_engine
from tests import stores
from tests.cli import Cli, install
from tests.go_tools import GoToolError, NoGoError

TRAIN = ROOT / ".venv" / "bin" / "train"
PORTS = [key for key, port in services.PORTS.items() if not port.each_node]
AGENT_PORTS = 4  # the head's and up to three workers', one after another
PASSPHRASE = "benchmark"  # noqa: S105 of a stack that lives for a minute
# A variable that says that a registry is available: stacks then use their default images. Without
# it they use the images of tests/images, which need none.
REGISTRY = "TRAINYARD_BENCH_REGISTRY"
TEST_IMAGES = {
    name: f"trainyard-test/{name}:latest" for name in ("prometheus", "grafana", "gateway")
}
TEST_BUILD_ARGS = {
    "BASE_IMAGE": "trainyard-test/base:latest",
    "GO_IMAGE": "trainyard-test/go",
}


class Program:
    """A program with a stack `bench`, on which the engine and the pulumi CLI work in turn.

    Args:
        folder: an empty folder.
        files: texts of the program by their names; none where the caller puts them there.
    """

    name = "bench"

    def __init__(self, folder: Path, files: Mapping[str, str] = MappingProxyType({})) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / ".venv").symlink_to(ROOT / ".venv")
        for name, text in files.items():
            (self.project / name).write_text(text)
        (self.project / f"Pulumi.{self.name}.yaml").touch()  # the engine makes the stack then
        (folder / "backend").mkdir()
        self.environment = os.environ | {
            "PULUMI_BACKEND_URL": f"file://{folder / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }

    def command(self, *arguments: str) -> list[str]:
        """Return the engine's command line."""
        project = ["-C", str(self.project)]
        return [sys.executable, "-m", "engine", *project, *arguments, "-s", self.name]

    def engine(self, *arguments: str) -> float:
        """Run the engine; return the seconds."""
        return run(self.command(*arguments), env=self.environment).seconds

    def pulumi(self, cli: Cli, *arguments: str) -> float:
        """Run the pulumi CLI; return the seconds."""
        command = ["pulumi", *arguments, "-s", self.name, "--non-interactive"]
        return run(command, env=cli.environment(self.environment), cwd=self.project).seconds


class ScratchStack(Program):
    """The checkout's program as a stack, in a project folder of links and its settings.

    Args:
        folder: an empty folder.
        runtime: process or docker.
        settings: more of the stack's settings.

    Attributes:
        prefix: of the names of its containers.
    """

    def __init__(self, folder: Path, runtime: str, settings: dict[str, Any]) -> None:
        super().__init__(folder)
        self.prefix = f"{folder.name}-"
        for entry in ("Pulumi.yaml", "infra"):
            (self.project / entry).symlink_to(ROOT / entry)
        first = _free_row(len(PORTS) + AGENT_PORTS)
        config: dict[str, Any] = {"runtime": runtime, "agentPort": first + len(PORTS)}
        config |= {port: first + offset for offset, port in enumerate(PORTS)}
        if runtime == "docker":
            config |= {"containerPrefix": self.prefix, "keepData": False}
        else:
            config |= {"stateDir": str(folder / "s"), "dataDir": str(folder / "data")}
            config["objectStore"] = "versitygw"
        if runtime == "docker" and not os.environ.get(REGISTRY):
            config |= {"images": TEST_IMAGES, "buildArgs": TEST_BUILD_ARGS}
        config |= settings
        document = {"config": {f"trainyard:{key}": value for key, value in config.items()}}
        (self.project / f"Pulumi.{self.name}.yaml").write_text(yaml.safe_dump(document))

    def train(self, command: str, *arguments: str | Path) -> list[str | Path]:
        """Return the command line of one of `train`'s commands on the stack."""
        return [TRAIN, command, "-s", self.name, *arguments]

    def submit(self, script: Path, *arguments: str, name: str = "") -> dict[str, Any]:
        """Run a script as a job that prints figures, and return them."""
        options: list[str | Path] = [script, *(["--name", name] if name else []), "--", *arguments]
        return record(self.train("submit", *options), env=self.environment, cwd=self.project)

    def outputs(self) -> dict[str, Any]:
        """Return the outputs of the stack, secrets in the clear."""
        command = self.command("output", "--json", "--show-secrets")
        return dict(json.loads(run(command, env=self.environment).stdout))

    def outputs_file(self, folder: Path) -> Path:
        """Write a file of the outputs in a folder, as `train` wants it; return its path."""
        file = folder / "outputs.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(self.outputs()))
        return file

    def s3(self) -> tuple[Any, str]:
        """Return a client of the stack's object store, and the bucket's name."""
        outputs = self.outputs()
        # Without it an address that needs no credentials is signed in an outdated way.
        return stores.client_of(outputs, signature_version="s3v4"), outputs["bucket"]

    def plain_submit(self, private: Path, *options: str) -> tuple[list[str], dict[str, str]]:
        """Return command and environment of Ray's own `ray job submit` to the stack's cluster.

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

    def processes(self, *words: str) -> list[psutil.Process]:
        """Return the stack's processes whose command lines have one of some words."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if not any(word in each for word in words for each in process.cmdline()):
                    continue
                above = [each for p in (process, *process.parents()) for each in p.cmdline()]
                if any(str(self.project.parent) in each for each in above):
                    found.append(process)
        return found

    def kill(self, word: str) -> None:
        """Kill the first of these processes, as a crash does."""
        if not (found := self.processes(word)):
            raise FailedError(f"the stack has no {word}")
        found[0].kill()

    def state(self) -> State:
        """Return the stack's state, secrets in the clear."""
        project = Project.find(self.project)
        backend = Backend(self.environment["PULUMI_BACKEND_URL"], self.project)
        return backend.load(project.name, self.name, PASSPHRASE)


@contextlib.contextmanager
def scratch_stack(runtime: str = "process", **settings: Any) -> Iterator[ScratchStack]:
    """Yield a stack; it is destroyed, and its folders are removed, when the body ends.

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


@contextlib.contextmanager
def pulumi_cli(*, optimized: bool) -> Iterator[Cli]:
    """Yield the pulumi CLI on PATH, or one that Go builds once.

    Args:
        optimized: whether Go builds it as for a release, which takes longer.

    Raises:
        SkippedError: neither is available.
        FailedError: Go cannot build it.
    """
    if shutil.which("pulumi"):
        yield Cli()
        return
    with tempfile.TemporaryDirectory(prefix="ty-bench-") as folder:
        try:
            cli = install(Path(folder), optimized=optimized)
        except NoGoError as error:
            raise SkippedError(f"the pulumi CLI is not on PATH, and {error}") from error
        except GoToolError as error:
            raise FailedError(str(error)) from error
        yield cli


def need_docker() -> None:
    """Require a Docker Engine, and build the tests' images that stand in for the registries' ones.

    Raises:
        SkippedError: no Engine.
    """
    if not shutil.which("docker"):
        raise SkippedError("no docker on PATH (install docker.io)")
    if not docker_engine.answers():
        raise SkippedError("no Docker Engine answers (install docker.io and start dockerd)")
    if not os.environ.get(REGISTRY):
        build: list[str | Path] = [
            sys.executable,
            ROOT / "tests" / "images" / "build.py",
            "base",
            "go",
        ]
        run([*build, *TEST_IMAGES], cwd=ROOT)


def _free_row(count: int) -> int:
    """Return the first of some consecutive free ports.

    They are not in the range that the kernel assigns from: Ray's nodes open dozens of ports there,
    and would sometimes take one before the service that needs it.
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
