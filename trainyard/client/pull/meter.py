"""The progress of a transfer: a bar on a terminal, else a line each half minute."""

import sys
import time
from typing import TextIO

from trainyard.access.terminal import clean
from trainyard.client.log_writer import CLEAR_LINE, bar
from trainyard.report.progress import LINE_INTERVAL_S

MB = 1_000_000
BAR_INTERVAL_S = 0.1


class Meter:
    """Counts the bytes of one transfer and shows them."""

    def __init__(self, what: str, total: int, out: TextIO | None = None) -> None:
        self.done = 0  # bytes that are here
        self._what = clean(what)
        self._total = total
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._begun = self._shown = time.monotonic()
        self._present = 0

    def skip(self, count: int) -> None:
        """Counts bytes that were here already, which say nothing about the speed."""
        self._present += count
        self.add(count)

    def add(self, count: int) -> None:
        """Counts bytes, and shows the progress when it is time."""
        self.done += count
        interval = BAR_INTERVAL_S if self._terminal else LINE_INTERVAL_S
        if time.monotonic() - self._shown >= interval:
            self.show()

    def show(self, note: str = "") -> None:
        """Shows the progress, with a note in place of the speed."""
        self._shown = time.monotonic()
        text = (
            f"{self._what}: {self.done / MB:.0f} of {self._total / MB:.0f} MB, {note or self.speed}"
        )
        if self._terminal:
            text = CLEAR_LINE + bar(self.done, self._total, text)
        self._out.write(text if self._terminal else f"{text}\n")
        self._out.flush()

    def close(self) -> None:
        """Removes the bar."""
        if self._terminal:
            self._out.write(CLEAR_LINE)
            self._out.flush()

    @property
    def speed(self) -> str:
        """The received bytes by the time since the beginning."""
        seconds = max(time.monotonic() - self._begun, 1e-6)
        return f"{(self.done - self._present) / MB / seconds:.0f} MB/s"
