"""`train` in the process of a test, and jobs as it knows them."""

import io
import sys
from typing import Any

import pytest

from trainyard.client import cli
from trainyard.client.job_server import Job, Status


class Terminal(io.StringIO):
    """What a command reads or writes, as a terminal."""

    def isatty(self) -> bool:
        return True


class Train:
    """Runs `train` in this process.

    Attributes:
        out: what the last command printed.
        err: its messages.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        """Return the exit code of a command with these arguments."""
        self._monkeypatch.setattr(sys, "argv", ["train", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        self.out, self.err = self._capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 1 if code else 0


def job(name: str = "job", status: str = "RUNNING", run: str = "", **changes: Any) -> Job:
    """A job with the id NAME, of a run."""
    metadata = ({"run": run} if run else {}) | changes.pop("metadata", {})
    return Job(submission_id=name, status=Status(status), metadata=metadata, **changes)
