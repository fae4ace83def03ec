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
    document = yaml.safe_load((project.root / "Pulumi.yaml").read_text())
    options: dict[str, str] = document["runtime"]["options"]
    return options


def start(
    environment_folder: Path, arguments: list[str], variables: dict[str, str], **options: Any
) -> subprocess.Popen[str]:
    """Start the Python of a virtual environment, with its programs first on PATH.

    A process group of its own, so that Ctrl-C does not reach it but by its parent.
    """
    programs = environment_folder / "bin"
    return subprocess.Popen(
        [str(programs / "python"), *arguments],
        env={**os.environ, **variables, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
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
