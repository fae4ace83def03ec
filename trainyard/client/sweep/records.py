"""The records in a sweep's folder, from which the same command resumes.

<folder>/               a point's files
results.csv, .png       the report at the end
earlier/<number>/       another sweep that had this folder, with all of these
.rayignore              keeps all of these out of uploads
.points/sweep.json      the sweep's name, drawn once, and what ranks its points
.points/<identity>.json a point that was sent, or is done
.points/lock            held by the process that runs the sweep
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainyard.access import users_file
from trainyard.client import fields
from trainyard.client.errors import ClientError
from trainyard.client.sweep.point import Point
from trainyard.store import archive
from trainyard.sweep.result import MOST_BYTES
from trainyard.tracking.run_folder import Goals, known_goals

FOLDER, TABLE, PICTURE, EARLIER = ".points", "results.csv", "results.png", "earlier"
IGNORED = ".rayignore"
SWEEP = "sweep"
OWN = (FOLDER, TABLE, PICTURE, EARLIER, IGNORED)  # in a sweep's folder, and of no point


@dataclass(frozen=True, kw_only=True)
class Record:
    """A point as it was last seen."""

    sweep: str  # the name under which its job stores the result
    job: str  # submission id; "" for a point that was not sent
    number: int  # its place in the sweep
    folder: str  # its output folder, relative to the sweep's folder
    overrides: tuple[str, ...]  # its own settings
    done: bool = False  # its result is here
    error: str = ""  # one line of a point that failed or was refused
    value: Any = None  # the result; None until it is done


class DamagedRecordError(ClientError, ValueError):
    """The record of a point cannot be read."""


class DamagedArchiveError(ClientError):
    """The files of a point cannot be unpacked."""


class Records:
    """The records of a sweep's folder, which one process at a time has open."""

    def __init__(self, folder: Path, name: str) -> None:
        """Opens the folder, which is made; a new sweep gets the name.

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
        self.name = self._named(name)

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def leave_out(self) -> None:
        """Leaves the folder out of uploads that contain it: results are not code.

        Raises:
            ClientError: the file that says so cannot be written.
        """
        try:
            (self.folder / IGNORED).write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise self._refused(error) from None

    def take_up(self, points: Sequence[Point], name: str) -> Path | None:
        """Takes the folder for the sweep with these points.

        If it has other points under their numbers, it is another sweep's, which is set aside: its
        new folder is returned, None without one. Points that such a sweep shares with this one are
        copied, not run again. A new sweep gets the name.

        Raises:
            ClientError: the folder cannot be written, or its records cannot be read.
        """
        records, wanted = self.all(), [each.identity for each in points]
        taken = {record.number: identity for identity, record in records.items()}
        is_another = any(taken.get(each.number, each.identity) != each.identity for each in points)
        found = (path for path in self.folder.glob(f"{EARLIER}/*") if path.name.isdecimal())
        earlier = sorted(found, key=lambda path: -int(path.name))
        try:
            if is_another:
                # The name is moved last: without it, the last start was killed during the move.
                if not earlier or (earlier[0] / FOLDER / f"{SWEEP}.json").exists():
                    number = int(earlier[0].name) + 1 if earlier else 1
                    earlier.insert(0, self.folder / EARLIER / str(number))
                self._set_aside(earlier[0], records)
                # Batches before this one are of both sweeps.
                first = min(each.number for each in points)
                wanted += [key for key, record in records.items() if record.number < first]
            for identity in wanted:
                if self.get(identity) is None:
                    self._take_back(identity, earlier)
        except OSError as error:
            raise self._refused(error) from None
        self.name = self._named(name)
        return earlier[0] if is_another else None

    def _set_aside(self, aside: Path, records: dict[str, Record]) -> None:
        folders = sorted(record.folder for record in records.values())
        notes = [f"{FOLDER}/{identity}.json" for identity in (*records, SWEEP)]
        for name in (*folders, TABLE, PICTURE, *notes):
            if (self.folder / name).exists():
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).rename(aside / name)

    def _take_back(self, identity: str, earlier: Sequence[Path]) -> None:
        """Copies a point from the newest of other sweeps that has sent it."""
        for aside in earlier:
            record = read_record(aside / FOLDER / f"{identity}.json")
            if record is not None:
                if (aside / record.folder).is_dir():
                    shutil.copytree(
                        aside / record.folder, self.folder / record.folder, dirs_exist_ok=True
                    )
                self.put(identity, record)
                return

    def rank(self, goals: Goals) -> None:
        """Notes what ranks the points, for the page."""
        self._write(SWEEP, {"name": self.name, "goals": goals})

    def get(self, identity: str) -> Record | None:
        """A point's record; None for one that was never sent."""
        return read_record(self._points / f"{identity}.json")

    def all(self) -> dict[str, Record]:
        """The records of all points, by their identities."""
        found = {path.stem: read_record(path) for path in paths(self.folder)}
        return {name: record for name, record in found.items() if record is not None}

    def put(self, identity: str, record: Record) -> None:
        """Writes a point's record, whole or not at all; ClientError if it cannot be written."""
        self._write(identity, asdict(record))

    def forget(self, identity: str) -> None:
        """Removes the record of a point that is not sent."""
        (self._points / f"{identity}.json").unlink(missing_ok=True)

    def unpack(self, packed: Path, folder: str) -> None:
        """Puts the files of a point into its folder, each whole or not at all.

        Raises:
            DamagedArchiveError: the archive is damaged, or leads out of the folder.
            ClientError: they cannot be written.
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

    def _named(self, name: str) -> str:
        """The name of the folder's sweep; if it has none, the given one is written."""
        found = _read(self._points / f"{SWEEP}.json")
        if found is None:
            self._write(SWEEP, found := {"name": name})
        return str(found["name"])

    def _write(self, name: str, value: dict[str, Any]) -> None:
        path = self._points / f"{name}.json"
        try:
            users_file.replace(path, json.dumps(value))
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> ClientError:
        return ClientError(
            f"cannot write results to {self.folder} ({error.strerror or error}): make room there, "
            "or give a folder of yours with hydra.sweep.dir=FOLDER; then run the same command "
            "again, which continues with the rest"
        )


def paths(folder: Path) -> list[Path]:
    """Return the files with the records of the points in a sweep's folder."""
    return sorted(path for path in (folder / FOLDER).glob("*.json") if path.stem != SWEEP)


def goals(folder: Path) -> Goals:
    """Return what ranks the points in a sweep's folder; DamagedRecordError if it is unreadable."""
    return known_goals((_read(folder / FOLDER / f"{SWEEP}.json") or {}).get("goals"))


def read_record(path: Path) -> Record | None:
    """Return the record in a file, which is written whole; None if it does not exist.

    Raises:
        DamagedRecordError: it cannot be read.
    """
    found = _read(path)
    if found is None:
        return None
    try:
        fields.amount(found, "number")
        overrides = tuple(map(str, fields.typed(found, "overrides", list)))
        return Record(**found | {"overrides": overrides})
    except (ValueError, TypeError):
        raise _unreadable(path) from None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError):
        raise _unreadable(path) from None


def _unreadable(path: Path) -> DamagedRecordError:
    return DamagedRecordError(
        f"{path} cannot be read: the folder of points is damaged: remove {path}, and this point "
        "runs again"
    )
