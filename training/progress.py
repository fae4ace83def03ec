"""Progress of an epoch: a line now and then, of which the client draws a bar on a terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from training.run_folder import PROGRESS_VARIABLE

BAR_INTERVAL_S = 1.0
LINE_INTERVAL_S = 30.0  # of a file or a CI's log, which is to show that something is done

T = TypeVar("T")


def interval() -> float:
    """Seconds between two lines: those of a bar where the client draws one."""
    return BAR_INTERVAL_S if os.environ.get(PROGRESS_VARIABLE) == "1" else LINE_INTERVAL_S


class Progress:
    """Prints `progress: TEXT batch 12/40 3.4 batches/s`; a bar's last line too."""

    def __init__(self, text: str, batches: int | None, interval_s: float) -> None:
        """Begins an epoch.

        Args:
            text: what is done.
            batches: of the epoch; None where nobody knows, and no bar can be drawn.
            interval_s: between two lines.
        """
        self._text = text
        self._all = batches
        self._interval_s = LINE_INTERVAL_S if batches is None else interval_s
        self._done = 0
        self._started = self._last = time.monotonic()

    def step(self) -> None:
        """Counts a batch."""
        self._done += 1
        now = time.monotonic()
        fills_bar = self._done == self._all and self._interval_s < LINE_INTERVAL_S
        if now - self._last < self._interval_s and not fills_bar:
            return
        self._last = now
        count = f"{self._done}" if self._all is None else f"{self._done}/{self._all}"
        rate = self._done / max(now - self._started, 1e-9)
        print(f"progress: {self._text} batch {count} {rate:.1f} batches/s", flush=True)  # noqa: T201


def watched(batches: Iterable[T], text: str, interval_s: float | None = None) -> Iterator[T]:
    """Passes batches on and prints their progress.

    Args:
        batches: of an epoch.
        text: what is done with them.
        interval_s: between two lines; by default what the client asked for.
    """
    total = len(batches) if isinstance(batches, Sized) else None
    progress = Progress(text, total, interval() if interval_s is None else interval_s)
    for batch in batches:
        yield batch
        progress.step()
