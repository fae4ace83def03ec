"""The logs of several points on one screen, each line with its point's number."""

from __future__ import annotations

import io
import sys


class Prefixed(io.StringIO):
    """A stream that puts a prefix before each line; several threads may have one each."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def write(self, text: str) -> int:
        """Writes whole lines at a time."""
        lines = "".join(f"{self._prefix} {line}\n" for line in text.splitlines())
        sys.stdout.write(lines)
        return len(text)

    def flush(self) -> None:
        """Flushes the standard output."""
        sys.stdout.flush()
