"""What the client writes to the user's terminal or file: sentences, tables, a job's log."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

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


def say(text: str, *, rule: bool = False) -> None:
    """Prints a sentence; with a rule above and below it when it is an announcement."""
    lines = [line := "-" * len(text), text, line] if rule else [text]
    print("\n".join(lines), flush=True)  # noqa: T201


def warn(text: str) -> None:
    """Prints a sentence beside the command's output, which may be a log or JSON."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def print_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Prints rows as JSON, as a table on a terminal, else as lines with tabs between."""
    if as_json:
        print(json.dumps(rows))  # noqa: T201
        return
    texts = [
        ["" if (value := row.get(name)) is None else str(value) for name in columns] for row in rows
    ]
    if sys.stdout.isatty():
        table = Table(*columns)
        for each in texts:
            table.add_row(*each)
        Console().print(table)
        return
    for each in (list(columns), *texts):
        say("\t".join(each))
