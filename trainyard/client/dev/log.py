"""A session's log as it grows: output for the user, records for the client."""

import codecs
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainyard.client.log_writer import Lines, LogWriter
from trainyard.dev_session import records, trees

BEFORE_PATH = re.compile(r"[\s\"'(]")


class Log:
    """Splits a log into its records and the rest, with this machine's paths in the rest."""

    def __init__(
        self, session: str, roots: Mapping[str, Path], record: Callable[[dict[str, Any]], None]
    ) -> None:
        """Begins.

        Args:
            session: its id.
            roots: each folder here, by its path in the session's copy.
            record: takes each record, after the output before it.
        """
        self._record = record
        self._writer = LogWriter(sys.stdout)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines = Lines()
        self._places = [
            (re.compile(rf"/{trees.SESSIONS}/{session}/{re.escape(root)}(?=/)"), str(here))
            for root, here in roots.items()
        ]

    def feed(self, piece: bytes) -> None:
        """Takes the next piece, of any length."""
        for line in self._lines.feed(self._decoder.decode(piece)):
            found = records.parse(line)
            if found is None:
                self._writer.write(self._here(line) + "\n")
            else:
                self._record(found)

    def _here(self, line: str) -> str:
        for place, here in self._places:
            *before, last = place.split(line)
            line = "".join(
                text[: -len(BEFORE_PATH.split(text)[-1]) or None] + here for text in before
            )
            line += last
        return line

    def close(self) -> None:
        """Writes the unfinished line."""
        self._writer.write(self._lines.rest())
        self._writer.close()


def unread(pieces: Iterator[bytes], skip: int) -> Iterator[bytes]:
    """Yield a log that is read again from its beginning, without its first bytes."""
    for piece in pieces:
        if skip < len(piece):
            yield piece[skip:]
        skip = max(0, skip - len(piece))
