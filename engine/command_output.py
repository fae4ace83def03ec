"""What a command is given and prints, wherever it runs."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from engine.values import Properties

END_SECONDS = 2.0  # a command may take to end itself when it is told to
LAST_LINES = 20  # of what a command printed that an error shows
CHUNK = 65536  # bytes
# What would move a terminal's cursor, or lie to its reader.
CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PREVIOUS = {"PULUMI_COMMAND_STDOUT": "stdout", "PULUMI_COMMAND_STDERR": "stderr"}


class Reader(Protocol):
    """Where a process's output comes from."""

    async def read(self, n: int = -1) -> bytes:
        """Up to n bytes; none at the end."""


class Output:
    """What one run of a command prints: kept whole, and shown line by line.

    Args:
        show: shows a line.
        logging: which streams are shown, as the property of that name.
    """

    def __init__(self, show: Callable[[str], None], logging: str) -> None:
        self._show = show
        self._shown = ("stdout", "stderr") if logging == "stdoutAndStderr" else (logging,)
        self._texts = {"stdout": "", "stderr": ""}
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    async def listen(self, name: str, reader: Reader) -> None:
        """Take in one stream to its end."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parts: list[str] = []
        rest = ""
        while chunk := await reader.read(CHUNK):
            text = decoder.decode(chunk)
            parts.append(text)
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self._line(name, line)
        if rest:
            self._line(name, rest)
        self._texts[name] = "".join(parts)

    def properties(self) -> Properties:
        """As the resource has it."""
        return {name: text.removesuffix("\n") for name, text in self._texts.items()}

    def last_lines(self) -> str:
        """For an error: without a standard output that is not to be shown."""
        return "\n".join(f"  {line}" for line in self._last) or "  (nothing that may be shown)"

    def _line(self, name: str, line: str) -> None:
        clean = CONTROLS.sub("", line.rstrip("\r").rpartition("\r")[2])
        if name in self._shown:
            self._show(clean)
        if name in self._shown or name == "stderr":
            self._last.append(clean)


async def converse(process: Any, stdin: str, output: Output) -> None:
    """Give a process its standard input and take in what it prints, to the end of both streams."""

    async def feed() -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it did not want all of it
            process.stdin.write(stdin.encode())
            await process.stdin.drain()
            process.stdin.write_eof()

    streams = [output.listen("stdout", process.stdout), output.listen("stderr", process.stderr)]
    await asyncio.gather(*streams, *([feed()] if process.stdin is not None else []))
