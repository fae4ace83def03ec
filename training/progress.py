"""Progress of an epoch, one line now and then, which the client draws as a bar."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, TypeVar

INTERVAL_S = 1.0

T_co = TypeVar("T_co", covariant=True)


class SizedIterable(Sized, Iterable[T_co], Protocol[T_co]):
    """What a data loader is."""


def watched(batches: SizedIterable[T_co], text: str) -> Iterator[T_co]:
    """Passes batches on and prints `progress: TEXT batch 12/40 3.4 batches/s` once a second."""
    started = last = time.monotonic()
    total = len(batches)
    for done, batch in enumerate(batches, start=1):
        yield batch
        now = time.monotonic()
        if now - last >= INTERVAL_S or done == total:
            last = now
            rate = done / max(now - started, 1e-9)
            print(f"progress: {text} batch {done}/{total} {rate:.1f} batches/s", flush=True)  # noqa: T201
