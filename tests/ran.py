"""Programs that run to their end."""

import subprocess
from collections.abc import Sequence
from typing import Any


def run(command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program; its exit code, and its output as text."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def output(command: Sequence[Any], **options: Any) -> str:
    """Return what a program writes to its standard output; a failure shows all that it said."""
    done = run(command, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
