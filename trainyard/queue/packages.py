"""The packages of jobs as files: Ray's head keeps them in memory, and only for a while."""

import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
MOST_BYTES = 2 * 2**30  # of one: Ray takes less
KEPT_S = 86_400.0  # without a job that needs it, since it was last asked for
PARTIAL = ".part-"  # what the names of unfinished files begin with


class TooLargeError(Exception):
    """A package is larger than MOST_BYTES."""


class Packages:
    """The packages in a folder, by names that follow from their content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Return a package's path; ValueError for a name that is none."""
        if not NAME.fullmatch(name):
            raise ValueError(f"package name {name[:80]!r} is not one of Ray's")
        return self._folder / name

    def has(self, name: str) -> bool:
        """Whether it is there; then it stays for KEPT_S, so a job that needs it can be posted."""
        with suppress(OSError):
            os.utime(self.path(name))
            return True
        return False

    async def keep(self, name: str, content: AsyncIterator[bytes]) -> None:
        """Store a package, whole and on disk before this returns; the first of a name stays.

        Raises:
            TooLargeError: it is not stored.
        """
        target, size = self.path(name), 0
        partial = self._folder / f"{PARTIAL}{secrets.token_hex(8)}"
        try:
            with partial.open("xb") as file:
                async for piece in content:
                    size += len(piece)
                    if size > MOST_BYTES:
                        raise TooLargeError
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(partial, target)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        finally:
            partial.unlink(missing_ok=True)

    def prune(self, needed: Collection[str]) -> None:
        """Remove what no job needs, and what was not finished, once it is old."""
        now = time.time()
        for path in self._folder.iterdir():
            with suppress(OSError):  # removed meanwhile
                if path.name not in needed and path.stat().st_mtime < now - KEPT_S:
                    path.unlink()
