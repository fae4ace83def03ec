"""The client's output to the user's terminal or file: sentences, tables, a job's log.

`trainyard.access.terminal` takes the effects out of other people's text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from trainyard import progress
from trainyard.access import terminal, typed
from trainyard.access.terminal import clean, clean_log, print_json

BAR_CELLS = 24
CLEAR_LINE = "\r\x1b[2K"
UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
LONGEST_ESCAPE = 4096  # characters; a longer one without an end is not an escape sequence
PLAIN = "\x1b[0m"
TIMES, MINUTE = ("started",), len("2026-01-31 18:00")
# Of a cell, by its text: the status of a job or of a service.
STYLES = {
    **dict.fromkeys(("SUCCEEDED", "RUNNING", "HEALTHY"), "green"),
    **dict.fromkeys(("PENDING", "DEPLOYING", "NOT_STARTED", "DELETING"), "yellow"),
    **dict.fromkeys(("FAILED", "UNHEALTHY", "DEPLOY_FAILED"), "red"),
}


_about = typed.DEFAULT_STACK


def about(stack: str) -> None:
    """Sets this command's stack, which the commands in its messages name."""
    global _about  # noqa: PLW0603 - a process runs one command
    _about = stack


class Lines:
    """Cuts a text that comes in pieces into lines, in linear time for any line length."""

    def __init__(self) -> None:
        self._begun: list[str] = []

    def feed(self, text: str) -> list[str]:
        """Takes a piece; returns the complete lines, without their ends."""
        first, *others = text.split("\n")
        self._begun.append(first)
        if not others:
            return []
        lines = ["".join(self._begun), *others[:-1]]
        self._begun = [others[-1]]
        return lines

    def rest(self) -> str:
        """Return the unfinished line, once."""
        rest = "".join(self._begun)
        self._begun = []
        return rest


class LogWriter:
    """Passes the lines of a log on, with its records of progress in readable form.

    On a terminal they become one bar that moves in place.
    """

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._lines = Lines()
        self._unfinished = ""  # the beginning of an escape sequence
        self._coloured = False

    def write(self, text: str) -> None:
        """Takes the next piece of the log, of any length."""
        text = self._unfinished + text
        found = UNFINISHED.search(text, max(0, len(text) - LONGEST_ESCAPE))
        end = found.start() if found else len(text)
        self._unfinished = text[end:]
        self._pass_on(clean_log(text[:end]))

    def _pass_on(self, text: str) -> None:
        self._coloured = self._coloured or "\x1b" in text
        for line in self._lines.feed(text):
            found = progress.parse(line)
            match found.record if found else None:
                case progress.Batches(total=int(total)) as batches if self._terminal:
                    beside = clean(batches.beside_bar)
                    self._out.write(CLEAR_LINE + bar(batches.done, total, beside))
                case progress.Batches() as batches if found:
                    self._write_line(found.before + batches.line)
                case progress.Epoch():
                    pass  # the job has its own line for it
                case _:
                    self._write_line(line)
        self._out.flush()

    def close(self) -> None:
        """Writes the unfinished line."""
        end = PLAIN if self._terminal and self._coloured else ""
        self._out.write((CLEAR_LINE if self._terminal else "") + self._lines.rest() + end)
        self._out.flush()

    def _write_line(self, line: str) -> None:
        self._out.write(f"{CLEAR_LINE}{line}\n" if self._terminal else f"{line}\n")


def bar(done: int, total: int, text: str) -> str:
    """A bar of fixed width with its text: `[####----] text`."""
    filled = BAR_CELLS * min(done, total) // max(total, 1)
    return f"[{'#' * filled}{'-' * (BAR_CELLS - filled)}] {text}"


def say(text: str, *, rule: bool = False) -> None:
    """Prints a sentence; with a rule above and below it when it is an announcement."""
    terminal.say(text, _about, rule=rule)


def warn(text: str) -> None:
    """Prints a sentence apart from the command's output, which may be a log or JSON."""
    terminal.warn(text, _about)


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Prints a title, and a line for each fact: its name, and its value."""
    say(title)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        say(f"  {name:<{width}}  {value}")


def print_table(
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool,
    whole: Sequence[str] = (),
    below: str = "",
    empty: str = "",
) -> None:
    """Prints rows as JSON, as a table on a terminal, else as tab-separated lines.

    Args:
        rows: values by column.
        columns: the most important first.
        as_json: all values, also those of no column.
        whole: columns that a terminal never cuts: ids for other commands.
        below: the last column, of long texts: on a terminal they follow the table.
        empty: printed if there are no rows, such as the command that makes some.
    """
    if as_json:
        print_json(rows)
        return
    if not rows and empty:
        warn(empty)
    if not sys.stdout.isatty():
        for cells in (columns, *texts(rows, columns)):
            terminal.print_row(cells)
    elif rows or not empty:
        shown = [name for name in columns if name != below]
        terminal.print_table(shown, texts(rows, shown, short=True), whole=whole, styles=STYLES)
        for row in rows:
            if row.get(below):
                say(f"{clean(row[columns[0]])} {below}: {clean(row[below])}")


def texts(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], *, short: bool = False
) -> list[list[object]]:
    """Return the cells of a table; `short` cuts times to their minute, for a terminal."""
    found = [[row.get(name, "") for name in columns] for row in rows]
    return [
        [
            "" if value is None else str(value)[:MINUTE] if short and name in TIMES else value
            for name, value in zip(columns, values, strict=True)
        ]
        for values in found
    ]
