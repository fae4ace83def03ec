"""The newest valid checkpoint of a run: whole on this machine, or not there."""

import shutil
from pathlib import Path

from trainyard.client.console import warn
from trainyard.client.errors import ClientError
from trainyard.client.pull.meter import MB, Meter
from trainyard.client.pull.source import RunSource
from trainyard.resume import checkpoint_files
from trainyard.resume.checkpoint_files import MANIFEST, PREFIX, CheckpointError
from trainyard.store.objects import Digest, FolderStore

PART = ".part"
ROOM_BYTES = 64 * 1024 * 1024  # left free: others write too


class Newest:
    """Brings checkpoints of one run; a damaged one gives one warning and is skipped."""

    def __init__(self, source: RunSource, folder: Path) -> None:
        """Asks nothing yet."""
        self._source = source
        self._folder = folder
        self._broken: set[str] = set()

    def pull(self) -> tuple[str, str]:
        """Brings the newest valid checkpoint, and removes older ones here.

        Returns:
            Its name, "" if the run has none; and the transfer, "" if it was here.

        Raises:
            ClientError: the store went away, none is valid, or the disk lacks room.
            OSError: a file cannot be written.
        """
        while True:
            # Listed again: the run may remove old ones while they are brought here.
            found = checkpoint_files.candidates(self._source)
            stored = [name for name, sizes in found.items() if MANIFEST in sizes]
            name = next((name for name in stored if name not in self._broken), "")
            if stored and not name:
                raise ClientError(
                    f"none of the {len(stored)} checkpoints in {self._source.where} is valid (see "
                    "the warnings); earlier pulls are unchanged"
                )
            if not name or self._is_whole(name):
                return name, ""
            try:
                came = self._fetch(name, found[name])
            except CheckpointError as error:
                if MANIFEST in checkpoint_files.candidates(self._source).get(name, {}):
                    self._broken.add(name)
                    warn(f"warning: checkpoint {name} is skipped: {error}")
            else:
                self._remove_older(name)
                return name, came

    def _is_whole(self, name: str) -> bool:
        here = FolderStore(self._folder)
        sizes = checkpoint_files.candidates(here).get(name, {})
        try:
            checkpoint_files.manifest_of(here, name, sizes)
        except CheckpointError:
            return False
        return True

    def _fetch(self, name: str, sizes: dict[str, int]) -> str:
        """Brings a checkpoint under a hidden name, checks every byte, and renames it."""
        manifest = checkpoint_files.manifest_of(self._source, name, sizes)
        part = self._folder / f".{name}{PART}"
        for left in self._folder.glob(f".{PREFIX}*{PART}"):
            if left != part:
                shutil.rmtree(left)
        goes_on = part.exists()
        self._check_room(name, sizes, part)
        total = sum(sizes.values())
        self._source.meter = meter = Meter(f"{self._source.run}: {name}", total)
        try:
            checkpoint_files.fetch(self._source, name, part)
        except CheckpointError:
            shutil.rmtree(part, ignore_errors=True)
            if goes_on:  # the part from before may be damaged
                return self._fetch(name, sizes)
            raise
        finally:
            meter.close()
            self._source.meter = None
        known = {
            file: Digest(digest["size"], digest["sha256"])
            for file, digest in manifest["files"].items()
        }
        checkpoint_files.write_manifest(part, manifest["model"], known)
        target = self._folder / name
        shutil.rmtree(target, ignore_errors=True)  # one that has lost a file
        part.rename(target)
        return f"{total / MB:.0f} MB, {meter.speed}"

    def _check_room(self, name: str, sizes: dict[str, int], part: Path) -> None:
        here = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
        # Packed files are there twice for a moment.
        more = sum(sizes.values()) + sizes.get(checkpoint_files.PACKED, 0) - here
        free = shutil.disk_usage(self._folder).free
        if more + ROOM_BYTES > free:
            raise ClientError(
                f"checkpoint {name} needs {more / MB:.0f} MB and some room in {self._folder}, "
                f"which has {free / MB:.0f} MB free: make room, or give another folder with --to"
            )

    def _remove_older(self, newest: str) -> None:
        for name in checkpoint_files.candidates(FolderStore(self._folder)):
            if checkpoint_files.order(name) < checkpoint_files.order(newest):
                # The manifest first: a checkpoint that lacks a file must not have one.
                (self._folder / name / MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(self._folder / name)
