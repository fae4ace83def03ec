"""A stack of its own for a benchmark: own folders, own free ports, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from engine.project import Project
from engine.state import Backend, State

ROOT = Path(__file__).parents[1]
PORTS = (
    "dashboardPort",
    "gcsPort",
    "rayClientPort",
    "autoscalerMetricsPort",
    "dashboardMetricsPort",
    "objectStorePort",
    "objectStoreConsolePort",
    "prometheusPort",
)
AGENT_PORTS = 4  # the head's and up to three workers', one after another
PASSPHRASE = "benchmark"  # noqa: S105 of a stack that lives for a minute


class ScratchStack:
    """The checkout's program as a stack `bench`, in a project folder of links beside its settings.

    Args:
        folder: an empty folder.
        settings: config of the stack on top of its own ports and folders.
    """

    name = "bench"

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        for entry in ("Pulumi.yaml", "infra", ".venv"):
            (self.project / entry).symlink_to(ROOT / entry)
        self.state_dir = Path(tempfile.mkdtemp(prefix="ty-bench-"))
        self.data_dir = folder / "data"
        ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
        ports["agentPort"] = _free_row(AGENT_PORTS)
        config = {"stateDir": str(self.state_dir), "dataDir": str(self.data_dir)} | ports | settings
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

    def state(self) -> State:
        """The stack's state, secrets in the clear."""
        project = Project.find(self.project)
        backend = Backend(self.environment["PULUMI_BACKEND_URL"], self.project)
        return backend.load(project.name, self.name, PASSPHRASE)


@contextlib.contextmanager
def scratch_stack(**settings: Any) -> Iterator[ScratchStack]:
    """A stack that is destroyed, and whose folders are removed, when the body ends."""
    folder = Path(tempfile.mkdtemp(prefix="ty-bench-"))
    stack = ScratchStack(folder, settings)
    try:
        yield stack
    finally:
        if stack.state().resources:
            stack.engine("destroy", "--yes")
        shutil.rmtree(stack.state_dir, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _free_row(count: int) -> int:
    """First of some consecutive free ports below the ephemeral range."""
    for first in range(20000, 32000, count):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError(f"no {count} consecutive free ports between 20000 and 32000")
