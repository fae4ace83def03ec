"""What a sweep's folder remembers, so that the same command goes on where it was left.

.points/sweep.json      the sweep's name, drawn once
.points/<identity>.json a point that was sent, or is done
.points/lock            held by the process that runs the sweep
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from client.errors import ClientError
from training import archive
from training.sweep.result import MOST_BYTES

FOLDER, TABLE, PICTURE = ".points", "results.csv", "results.png"
SWEEP = "sweep"
OWN = (FOLDER, TABLE, PICTURE)  # in a sweep's folder, and of no point
UNKNOWN = "the folder of points is damaged: remove {path}, and this point runs again"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A point as it was last seen; `value` is None until it is done.

    Its files are in the sweep's folder under its number.
    """

    job: str
    number: int
    overrides: tuple[str, ...]
    done: bool = False
    value: Any = None


class DamagedArchiveError(ClientError):
    """What a point has left cannot be unpacked."""


class Records:
    """The records of a sweep's folder, which one process at a time has open."""

    def __init__(self, folder: Path, name: str) -> None:
        """Opens the folder.

        Args:
            folder: of the sweep; it is made.
            name: of the sweep, if it is new.

        Raises:
            ClientError: it cannot be written, or another process has it.
        """
        self.folder = folder
        self._points = folder / FOLDER
        self._held = ExitStack()
        try:
            self._points.mkdir(parents=True, exist_ok=True)
            lock = self._held.enter_context((self._points / "lock").open("a"))
        except OSError as error:
            raise self._refused(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._held.close()
            raise ClientError(
                f"another process runs the sweep in {folder}: wait for it, or give another folder "
                "with hydra.sweep.dir=FOLDER"
            ) from None
        found = self._read(SWEEP)
        self.name = str(found["name"]) if found else name
        if not found:
            self._write(SWEEP, {"name": name})

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()

    def get(self, identity: str) -> Record | None:
        """A point's record; None for one that was never sent."""
        found = self._read(identity)
        if found is None:
            return None
        return Record(**found | {"overrides": tuple(found["overrides"])})

    def all(self) -> dict[str, Record]:
        """The records of all points, by their identities."""
        names = {path.stem for path in self._points.glob("*.json")} - {SWEEP}
        return {name: record for name in sorted(names) if (record := self.get(name)) is not None}

    def put(self, identity: str, record: Record) -> None:
        """Writes a point's record, whole or not at all.

        Raises:
            ClientError: the folder does not take it.
        """
        self._write(identity, asdict(record))

    def forget(self, identity: str) -> None:
        """Removes the record of a point that is not sent, or has failed."""
        (self._points / f"{identity}.json").unlink(missing_ok=True)

    def unpack(self, packed: Path, folder: str) -> None:
        """Puts the files of a point into its folder, each whole or not at all.

        Args:
            packed: the archive.
            folder: of the point, below the sweep's.

        Raises:
            DamagedArchiveError: the archive is damaged, or leads out of the folder.
            ClientError: the folder does not take them.
        """
        try:
            target = self.folder / folder
            target.mkdir(parents=True, exist_ok=True)
            archive.unpack(packed, target, most_bytes=MOST_BYTES)
        except archive.ArchiveError as error:
            raise DamagedArchiveError(
                f"the files of a point cannot be unpacked: {error}; run it again"
            ) from None
        except OSError as error:
            raise self._refused(error) from None

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self._points / f"{name}.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            raise ClientError(f"{path} cannot be read: {UNKNOWN.format(path=path)}") from None

    def _write(self, name: str, value: dict[str, Any]) -> None:
        path = self._points / f"{name}.json"
        part = path.with_suffix(".part")
        try:
            with part.open("w", encoding="utf-8") as file:
                json.dump(value, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> ClientError:
        return ClientError(
            f"cannot write results to {self.folder} ({error.strerror or error}): make room there, "
            "or give a folder of yours with hydra.sweep.dir=FOLDER; then run the same command "
            "again, which goes on with what is not done"
        )
