"""A run's folder in the store, read by ranges: a transfer that was cut goes on where it was.

The ranges of a file come several at a time and are written in order: however its transfer ended,
a file on this machine is the beginning of the whole.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from trainyard.client import parallel
from trainyard.client.errors import ClientError
from trainyard.client.pull.meter import Meter
from trainyard.client.store import AwayError, Listed, Store
from trainyard.objects import BLOCK_BYTES, DEFAULT_PATIENCE_S, PATIENCE_VARIABLE, Digest

T = TypeVar("T")

PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 4  # 32 MiB of memory
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0


class RunSource:
    """A run in the store; implements `trainyard.objects.Source`.

    A store that has answered and goes away is asked again for TRAINYARD_STORE_PATIENCE_S.

    Attributes:
        run: its name.
        where: its address.
        answered: whether the store has ever answered.
        files: those of the last listing.
        meter: counts what is downloaded; None counts nothing.
    """

    def __init__(self, store: Store, run: str) -> None:
        """Asks nothing yet."""
        self.where = f"{store.url}/{run}"
        self.files: dict[str, Listed] = {}
        self.meter: Meter | None = None
        self._store = store
        self.run = run
        self.answered = False
        self._patience_s = float(os.environ.get(PATIENCE_VARIABLE, DEFAULT_PATIENCE_S))

    def sizes(self) -> dict[str, int]:
        """Lists the run; returns the bytes of each file."""
        self.files = self._patiently(lambda: self._store.listed(self.run))
        return {name: listed.size for name, listed in self.files.items()}

    def read(self, name: str) -> bytes:
        """Reads a small file."""
        content = self._patiently(lambda: self._store.get(f"{self.run}/{name}"))
        if content is None:
            raise FileNotFoundError(f"{self.where}/{name}")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file into the run."""
        self._patiently(lambda: self._store.put(f"{self.run}/{name}", content))

    def download(self, name: str, target: Path) -> Digest:
        """Fetches a file of the last listing, after the part of it that is here."""
        if name not in self.files:
            raise FileNotFoundError(f"{self.where}/{name}")
        size = self.files[name].size
        hashed = hashlib.sha256()
        with target.open("ab+") as file:
            if file.tell() > size:
                file.truncate(0)
            file.seek(0)
            while block := file.read(BLOCK_BYTES):
                hashed.update(block)
            first = file.tell()
            if self.meter is not None:
                self.meter.skip(first)
            written: Future[int] | None = None
            try:
                for part in self._parts(name, first, size):
                    if written is not None:
                        written.result()
                    written = parallel.start(file.write, part)  # hashed meanwhile
                    hashed.update(part)
                    if self.meter is not None:
                        self.meter.add(len(part))
            finally:
                if written is not None:
                    written.result()
        return Digest(size, hashed.hexdigest())

    def _parts(self, name: str, first: int, size: int) -> Iterator[bytes]:
        """The parts of a file from a byte on, in order."""
        ranges = iter(
            (start, min(PART_BYTES, size - start)) for start in range(first, size, PART_BYTES)
        )
        asked: deque[tuple[int, int, Future[bytes | None]]] = deque()
        while True:
            while len(asked) < PARTS_AT_ONCE and (each := next(ranges, None)) is not None:
                asked.append((*each, parallel.start(self._part, name, *each)))
            if not asked:
                return
            start, count, future = asked.popleft()
            again = functools.partial(self._part, name, start, count)
            content = self._patiently(future.result, again)
            if content is None:
                raise FileNotFoundError(f"{self.where}/{name}")
            if len(content) != count:
                raise ClientError(
                    f"{self.where}/{name} gave {len(content)} bytes from byte {start} on, {count} "
                    "were asked for: another program changes it, or the store is broken; look at "
                    "its log"
                )
            yield content

    def _part(self, name: str, start: int, count: int) -> bytes | None:
        return self._store.part(f"{self.run}/{name}", start, count)

    def _patiently(self, action: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Tries an action until the store has answered.

        Args:
            action: the first try.
            again: each further try; None: the action.

        Raises:
            AwayError: it never answered, or not within the patience.
        """
        pause, begun = FIRST_PAUSE_S, time.monotonic()
        while True:
            try:
                found = action()
            except AwayError:
                if not self.answered or time.monotonic() - begun + pause > self._patience_s:
                    raise
            else:
                self.answered = True
                return found
            if self.meter is not None and pause == FIRST_PAUSE_S:
                self.meter.show("the store is away and asked again")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
            action = again or action
