"""A run's folder in the store, read by ranges: a transfer that was cut goes on where it was.

The ranges of a file come several at a time and are written in order: however its transfer ended,
a file on this machine is the beginning of the whole.
"""

import functools
import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from trainyard.access import parallel
from trainyard.client.errors import ClientError
from trainyard.client.pull.meter import Meter
from trainyard.store.objects import BLOCK_BYTES, Digest, Listed, Store, patience_s, retry

T = TypeVar("T")

PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 4  # 32 MiB of memory


class RunSource:
    """A run in the store; implements `trainyard.store.objects.StoreReader`.

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
        self.where = f"{store.where}/{run}"
        self.files: dict[str, Listed] = {}
        self.meter: Meter | None = None
        self._store = store
        self.run = run
        self.answered = False

    def sizes(self) -> dict[str, int]:
        """Lists the run; returns the bytes of each file."""
        self.files = self._patiently(lambda: self._store.listed(self.run))
        return {name: listed.size for name, listed in self.files.items()}

    def read(self, name: str) -> bytes:
        """Reads a small file."""
        return self._patiently(lambda: self._store.read(f"{self.run}/{name}"))

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file into the run."""
        self._patiently(lambda: self._store.write(f"{self.run}/{name}", content))

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
        asked: deque[tuple[int, int, Future[bytes]]] = deque()
        while True:
            while len(asked) < PARTS_AT_ONCE and (each := next(ranges, None)) is not None:
                asked.append((*each, parallel.start(self._part, name, *each)))
            if not asked:
                return
            start, count, future = asked.popleft()
            again = functools.partial(self._part, name, start, count)
            content = self._patiently(future.result, again)
            if len(content) != count:
                raise ClientError(
                    f"{self.where}/{name} gave {len(content)} bytes from byte {start} on, {count} "
                    "were asked for: another program changes it, or the store is broken; look at "
                    "its log"
                )
            yield content

    def _part(self, name: str, start: int, count: int) -> bytes:
        return self._store.part(f"{self.run}/{name}", start, count)

    def _patiently(self, action: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Tries an action until the store has answered; then `again`, if it is given."""
        tries = itertools.chain([action], itertools.repeat(again or action))

        def tried() -> T:
            return next(tries)()

        found = retry(tried, patience_s() if self.answered else 0, self._tell_away)
        self.answered = True
        return found

    def _tell_away(self) -> None:
        if self.meter is not None:
            self.meter.show("the store is away and asked again")
