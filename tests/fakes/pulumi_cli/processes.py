"""What the CLI starts: Python of the project's environment, in the program's folder."""

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import yaml

from engine.project import Project

Say = Callable[[str], None]


def options_of(project: Project) -> dict[str, str]:
    """The options of the runtime in Pulumi.yaml."""
    runtime = yaml.safe_load((project.root / "Pulumi.yaml").read_text())["runtime"]
    return dict(runtime.get("options", {})) if isinstance(runtime, dict) else {}


def start(
    project: Project, base: Path, arguments: list[str], variables: dict[str, str], **options: Any
) -> subprocess.Popen[str]:
    """Start Python in a process group of its own, so that Ctrl-C reaches its parent alone.

    Args:
        project: whose virtual environment it is of, if it names one.
        base: folder that the path of that environment is relative to.
        arguments: of Python.
        variables: added to the environment.
        options: of Popen.
    """
    python = os.environ.get("PULUMI_PYTHON_CMD", "python3")
    path = os.environ["PATH"]
    if virtualenv := options_of(project).get("virtualenv"):
        programs = base / virtualenv / "bin"
        python, path = str(programs / "python"), f"{programs}{os.pathsep}{path}"
    return subprocess.Popen(
        [python, *arguments],
        env={**os.environ, **variables, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        **options,
    )


def pass_on(stream: IO[str], say: Say) -> threading.Thread:
    """Say each line of a stream, in a thread that ends with it."""

    def read() -> None:
        for line in stream:
            say(line.rstrip("\n"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread
