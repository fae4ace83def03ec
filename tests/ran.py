"""Programs that have to end well."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any


def output(command: Sequence[Any], **options: Any) -> str:
    """Return what a program writes to its standard output; a failure shows all that it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
