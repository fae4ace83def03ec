"""Writes a job's log to the user's terminal or file."""

from __future__ import annotations

import re
import sys
from typing import TextIO

# The lines of training/progress.py, behind whatever Ray puts before a worker's line.
PROGRESS = re.compile(r"progress: (?P<text>.*\bbatch (?P<done>\d+)/(?P<all>\d+).*)")
BAR_CELLS = 24
CLEAR_LINE = "\r\x1b[2K"


class LogWriter:
    """Passes a log on; on a terminal its progress lines become one bar that moves in place."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._rest = ""

    def write(self, text: str) -> None:
        """Takes the next piece of the log, of any length."""
        if not self._terminal:
            self._out.write(text)
            self._out.flush()
            return
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            found = PROGRESS.search(line)
            if found:
                self._out.write(
                    CLEAR_LINE + bar(int(found["done"]), int(found["all"]), found["text"])
                )
            else:
                self._out.write(f"{CLEAR_LINE}{line}\n")
        self._out.flush()

    def close(self) -> None:
        """Writes what came without a line's end."""
        if self._terminal:
            self._out.write(CLEAR_LINE + self._rest)
            self._out.flush()
            self._rest = ""


def bar(done: int, total: int, text: str) -> str:
    """A bar of fixed width with its text: `[####----] text`."""
    filled = BAR_CELLS * min(done, total) // max(total, 1)
    return f"[{'#' * filled}{'-' * (BAR_CELLS - filled)}] {text}"
