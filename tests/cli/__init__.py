"""The pulumi CLI, if none with its plugins is on PATH: built by Go, with its release's programs.

plugin.py replaces the plugins for docker and command, which are in no package registry.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import go_tools

Environment = Mapping[str, str]

SECONDS = 600  # that a command may take
HERE = Path(__file__).parent
# Programs that the CLI starts, by their names on PATH. The environment of a project has
# Pulumi's own host of dynamic resources.
PYTHON = f"exec {shlex.quote(sys.executable)}"
PLUGINS = {
    "pulumi-language-python": f"{PYTHON} {HERE}/language_host.py",
    "pulumi-resource-docker": f"{PYTHON} {HERE}/plugin.py docker",
    "pulumi-resource-command": f"{PYTHON} {HERE}/plugin.py command",
    "pulumi-resource-pulumi-python": (
        'exec "${PULUMI_RUNTIME_VIRTUALENV:+$PULUMI_RUNTIME_VIRTUALENV/bin/}'
        '${PULUMI_PYTHON_CMD:-python3}" -u -m pulumi.dynamic'
    ),
}


@dataclass(frozen=True)
class Cli:
    """The pulumi CLI.

    Attributes:
        folder: with it, where it is not on PATH.
    """

    folder: Path | None = None

    def environment(self, of: Environment) -> dict[str, str]:
        """An environment in which `pulumi` is this one."""
        variables = {**of, "PULUMI_SKIP_UPDATE_CHECK": "1"}
        if self.folder:
            variables["PATH"] = f"{self.folder}{os.pathsep}{of['PATH']}"
            variables["PULUMI_HOME"] = str(self.folder / "home")
        return variables

    def start(
        self, project: Path, environment: Environment, stack: str, command: str, *arguments: str
    ) -> subprocess.Popen[str]:
        """Start a command in a session of its own; both outputs are one stream."""
        variables = self.environment(environment)
        program = shutil.which("pulumi", path=variables["PATH"])
        assert program is not None
        return subprocess.Popen(
            [program, *command.split(), "-s", stack, "--non-interactive", *arguments],
            cwd=project,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(
        self, project: Path, environment: Environment, stack: str, command: str, *arguments: str
    ) -> tuple[int, str]:
        """Run a command; its exit code and what it printed."""
        with self.start(project, environment, stack, command, *arguments) as process:
            try:
                text, _ = process.communicate(timeout=SECONDS)
            finally:
                process.kill()
        return process.returncode, text

    def done(
        self, project: Path, environment: Environment, stack: str, command: str, *arguments: str
    ) -> str:
        """Run a command that has to succeed; what it printed."""
        code, text = self.run(project, environment, stack, command, *arguments)
        assert code == 0, text
        return text


def lacking(environment: Environment) -> str:
    """The parts that the `pulumi` of an environment lacks to run all stacks; "" if none.

    A missing plugin would be downloaded in the middle of a test.
    """
    path = environment["PATH"]
    program = shutil.which("pulumi", path=path)
    if program is None:
        return "the pulumi CLI is not on PATH"
    listed = subprocess.run(
        [program, "plugin", "ls", "--json"],
        env={**environment, "PULUMI_SKIP_UPDATE_CHECK": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    cached = {plugin["name"] for plugin in json.loads(listed.stdout)}
    names = [
        name
        for name in ("docker", "command")
        if name not in cached and shutil.which(f"pulumi-resource-{name}", path=path) is None
    ]
    return f"the pulumi CLI on PATH lacks the plugins {', '.join(names)}" if names else ""


def install(folder: Path, *, optimized: bool = False) -> Cli:
    """Put the CLI, with its code optimized or not, and the programs it starts into a folder.

    Raises:
        NoGoError: Go is missing or too old to build it.
        GoToolError: Go cannot build it.
    """
    program = go_tools.obtain("pulumi", optimized=optimized)
    # As in a release: if the CLI is a link, it warns of plugins that are not next to its target.
    try:
        os.link(program, folder / "pulumi")
    except OSError:  # another file system
        shutil.copy2(program, folder / "pulumi")
    for name, command in PLUGINS.items():
        (folder / name).write_text(f'#!/bin/sh\n{command} "$@"\n')
        (folder / name).chmod(0o755)
    return Cli(folder)
