"""A folder of another machine, brought here by SFTP while its files are still being written.

Only what changed is fetched. Each file appears whole, and a checkpoint's folder with all of its
files at once. Nothing is deleted here, even if Ray deletes old checkpoints there.
"""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from trainyard.access import ssh_run as ssh
from trainyard.access.ssh import Connection
from trainyard.access.terminal import clean

CHECKPOINT = "checkpoint_"  # how the name of a checkpoint's folder begins
MIB = 2**20

Stamp = tuple[int, int]  # size in bytes, time of the last change in seconds since 1970
Files = dict[PurePosixPath, Stamp]  # by path relative to the mirrored folder


@dataclass
class Mirror:
    """Brings a folder here, at each call of `pull`."""

    connection: Connection
    there: str  # absolute path of the folder there; it may not exist yet
    here: Path  # the folder here
    tell: Callable[[str], None]  # called with a line for each fetched file or checkpoint
    _seen: dict[PurePosixPath, Files] = field(default_factory=dict)

    def pull(self, *, last: bool) -> None:
        """Fetches changed files.

        Args:
            last: nothing changes there any more. Otherwise only files that have not changed since
                the previous call are fetched: the rest may be half written.

        Raises:
            SshError: the machine cannot be reached, or the folder cannot be read.
            OSError: a file cannot be written here.
        """

        async def work(client: Any) -> None:
            found = _units(await _list(client, self.there))
            before, self._seen = self._seen, found
            for unit, files in found.items():
                settled = last or before.get(unit) == files
                if not settled or _is_here(self.here / unit, unit, files):
                    continue
                if await self._fetch(client, unit, files):
                    size = sum(size for size, _ in files.values())
                    self.tell(f"fetched {clean(self.here / unit)} ({size / MIB:.1f} MiB)")

        ssh.with_files(self.connection, work)

    async def _fetch(self, client: Any, unit: PurePosixPath, files: Files) -> bool:
        """Fetches one file or one checkpoint; False if it changed or vanished during that."""
        import asyncssh  # noqa: PLC0415 - slow

        target = self.here / unit
        draft = target.with_name(f".{target.name}.part")
        _remove(draft)
        try:
            for path, stamp in files.items():
                place = draft / path.relative_to(unit)
                place.parent.mkdir(parents=True, exist_ok=True)
                await client.get(f"{self.there}/{path}", place, preserve=True)
                if _stamp(place.stat()) != stamp:
                    return False
            if target.is_dir():
                _remove(target)
            draft.replace(target)
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            return False
        finally:
            _remove(draft)
        return True


async def _list(client: Any, folder: str) -> Files:
    """All files below a folder; links and special files are left out."""
    import asyncssh  # noqa: PLC0415 - slow

    found: Files = {}
    waiting = [PurePosixPath()]
    while waiting:
        place = waiting.pop()
        try:
            entries = [each async for each in client.scandir(f"{folder}/{place}")]
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            continue
        for entry in entries:
            name, attrs = str(entry.filename), entry.attrs
            if name in {".", ".."} or "/" in name:  # a server may say anything
                continue
            if stat.S_ISDIR(attrs.permissions or 0):
                waiting.append(place / name)
            elif stat.S_ISREG(attrs.permissions or 0):
                found[place / name] = (int(attrs.size or 0), int(attrs.mtime or 0))
    return found


def _units(files: Files) -> dict[PurePosixPath, Files]:
    """Groups files that appear at once: each file, or all files of a checkpoint's folder."""
    found: dict[PurePosixPath, Files] = {}
    for path, stamp in sorted(files.items()):
        folders = [each for each in path.parents if each.name.startswith(CHECKPOINT)]
        found.setdefault(folders[-1] if folders else path, {})[path] = stamp
    return found


def _is_here(target: Path, unit: PurePosixPath, files: Files) -> bool:
    try:
        return all(
            _stamp((target / path.relative_to(unit)).lstat()) == stamp
            for path, stamp in files.items()
        )
    except OSError:
        return False


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_size, int(found.st_mtime)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
