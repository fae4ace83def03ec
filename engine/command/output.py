"""The output of a command: kept whole, and shown line by line."""

import codecs
import re
from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.values import Properties

LAST_LINES = 20  # of a command's output, shown in an error
CHUNK = 65536  # bytes
# Characters that would move a terminal's cursor or deceive its reader.
CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Reader(Protocol):
    """A stream of a process's output."""

    async def read(self, n: int = -1) -> bytes:
        """Up to n bytes; none at the end."""


class Output:
    """The output of one run of a command; `show` gets each line."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._texts = {"stdout": "", "stderr": ""}
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    async def listen(self, name: str, reader: Reader) -> None:
        """Read one stream to its end."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parts: list[str] = []
        rest = ""
        while chunk := await reader.read(CHUNK):
            text = decoder.decode(chunk)
            parts.append(text)
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self._line(line)
        if rest:
            self._line(rest)
        self._texts[name] = "".join(parts)

    def properties(self) -> Properties:
        return {name: text.removesuffix("\n") for name, text in self._texts.items()}

    def last_lines(self) -> str:
        return "\n".join(f"  {line}" for line in self._last) or "  (nothing)"

    def _line(self, line: str) -> None:
        clean = CONTROLS.sub("", line.rstrip("\r").rpartition("\r")[2])
        self._show(clean)
        self._last.append(clean)
