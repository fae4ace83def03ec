"""A job's log for the user: whole lines, with its records of progress as a bar on a terminal."""

from __future__ import annotations

import re
import sys
from typing import TextIO

from trainyard.access.terminal import clean, clean_log
from trainyard.report import progress

BAR_CELLS = 24
CLEAR_LINE = "\r\x1b[2K"
UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
LONGEST_ESCAPE = 4096  # characters; a longer one without an end is not an escape sequence
PLAIN = "\x1b[0m"


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
