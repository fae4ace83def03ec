"""Progress of an epoch: a line each half minute, or each second where a bar is made of them."""

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
    """Prints how far an epoch is.

    For a bar `progress: TEXT batch 12/40 3.4 batches/s`, with the last batch too; for a log
    `TEXT: batch 12 of 40, 3.4 batches/s`. Drills count batches by the first kind only: a line
    of the other kind is up to half a minute old.
    """

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
        bar = self._interval_s < LINE_INTERVAL_S
        if now - self._last < self._interval_s and not (bar and self._done == self._all):
            return
        self._last = now
        rate = f"{self._done / max(now - self._started, 1e-9):.1f} batches/s"
        if bar:
            line = f"progress: {self._text} batch {self._done}/{self._all} {rate}"
        else:
            of = "" if self._all is None else f" of {self._all}"
            line = f"{self._text}: batch {self._done}{of}, {rate}"
        print(line, flush=True)  # noqa: T201


def watched(
    batches: Iterable[T], text: str, interval_s: float | None = None, *, tells: bool = True
) -> Iterator[T]:
    """Passes batches on and prints their progress.

    Args:
        batches: of an epoch.
        text: what is done with them.
        interval_s: between two lines; by default what the client asked for.
        tells: whether it is this worker that prints, for all of them do the same.
    """
    total = len(batches) if isinstance(batches, Sized) else None
    progress = Progress(text, total, interval() if interval_s is None else interval_s)
    for batch in batches:
        yield batch
        if tells:
            progress.step()
