"""A program that runs next to the node, in a process that tests can end and start again."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
STOP_SECONDS = 30.0


class Process:
    """A program as a process, which ends with this one.

    Args:
        command: the program and its arguments.
        log: file for its output.
    """

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Process":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End it: the objects that it maintained stay as they are."""
        if self._process:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None
