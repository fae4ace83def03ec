"""When the lines of a job's log were written: Ray and most programs print them without a time.

The job's recorder looks once a second and notes how many lines there are. Of more than MOST_ROWS
notes every second one is left out, again and again: a job of half an hour has one a second, one of
a day about one a minute.
"""

from __future__ import annotations

import io
import math
import os
import time
from typing import BinaryIO

from trainyard import json_values

MOST_ROWS = 2000
PIECE = 2**20  # bytes that are read at once


class LogTimes:
    """Notes the times at which a log grew; `log` is open for bytes."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int]] = []
        self._read, self._lines, self._last = 0, 0, b""

    def look(self, log: BinaryIO) -> None:
        """Counts the new lines."""
        if os.fstat(log.fileno()).st_size == self._read:
            return
        now = math.ceil(time.time())  # before the count: a line may come while we read
        log.seek(self._read)
        while piece := log.read(PIECE):
            self._read += len(piece)
            self._lines += lines(piece) - (self._last == b"\r" and piece[:1] == b"\n")
            self._last = piece[-1:]
        self._rows.append((now, self._lines))
        if len(self._rows) > MOST_ROWS:
            del self._rows[:-1:2]

    def record(self, stored: bytes, head: bytes) -> bytes:
        """Return the notes as JSON; `stored` is the log as it is kept, `head` its part in front."""
        times, numbers = zip(*self._rows, strict=True) if self._rows else ((), ())
        left = self._lines - lines(stored)
        found = {"times": times, "lines": numbers, "head": lines(head), "left": left}
        return json_values.text(found).encode()


def lines(log: bytes) -> int:
    r"""Return how many lines end in a log; as for its readers, `\r` of a progress bar ends one."""
    return log.count(b"\n") + log.count(b"\r") - log.count(b"\r\n")


def as_read(log: bytes) -> str:
    """Return a log as text, with the ends of lines that are counted here."""
    return io.StringIO(log.decode(errors="replace"), newline=None).read()


def lines_before(record: bytes | None, since: float, *, stored: bool) -> int | None:
    """Return how many lines a log had at a time, in s since 1970; None if that is not known.

    `stored` is for a log as the store has it, without its middle where it is long. Where notes are
    missing, too few lines are told, never too many.
    """
    found = json_values.parse_object(record or b"") or {}
    times, numbers = found.get("times"), found.get("lines")
    if not isinstance(times, list) or not isinstance(numbers, list):
        return None
    rows = zip(map(json_values.number, times), map(json_values.number, numbers), strict=False)
    before = int(max((n or 0 for at, n in rows if at is not None and at <= since), default=0))
    if not stored:
        return before
    head, left = (int(json_values.number(found.get(name)) or 0) for name in ("head", "left"))
    return max(min(before, head), before - left, 0)
