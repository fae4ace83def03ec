"""A session's copy of the code on a node: the files that Ray unpacked, with later changes.

    <Ray's session>/runtime_resources/dev_sessions/1f0c9a2b/tree/my_job.py        the working folder
    <Ray's session>/runtime_resources/dev_sessions/1f0c9a2b/modules/training/     the package

Other jobs share Ray's unpacked files, so those stay unchanged. Files of the copy change in place:
the paths that a debugger and tracebacks show stay the same in each run.
"""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .patches import Changes, Patch, PatchError

SESSIONS = "dev_sessions"
WORKING_DIR, MODULES = "tree", "modules"
PACKAGE = "trainyard"
UNPACKED = {WORKING_DIR: "working_dir_files", MODULES: "py_modules_files"}  # Ray's folders


class Tree:
    """The copy of one session in its folder on this node; `roots` are Ray's unpacked folders."""

    def __init__(self, folder: Path, roots: dict[str, Path]) -> None:
        self.folder = folder
        self.roots = roots
        self._used: IO[str] | None = None

    def place(self) -> None:
        """Copies Ray's unpacked files, unless done already; removes unused copies."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._used = _shared(self.folder)
        _sweep(self.folder.parent, self.folder.name)
        with self._lock():
            for name, unpacked in self.roots.items():
                if not (self.folder / name).exists():
                    unfinished = self.folder / f"{name}.new"
                    shutil.rmtree(unfinished, ignore_errors=True)
                    shutil.copytree(unpacked, unfinished)
                    unfinished.rename(self.folder / name)

    def update(self, changes: Changes) -> None:
        """Applies the changes that were not applied yet.

        Raises:
            PatchError: a patch does not fit, or names a file outside.
        """
        with self._lock():
            record = self.folder / "applied.json"
            applied = json.loads(record.read_text()) if record.exists() else {}
            for name, patch in changes.items():
                digest = f"{patch.digest} {patch.executable}" if patch else ""
                if applied.get(name) != digest:
                    self._change(name, patch)
                    applied[name] = digest
            record.write_text(json.dumps(applied))

    def enter(self) -> None:
        """Makes this process import from the copy, and work in it."""
        moved = {str(unpacked): str(self.folder / name) for name, unpacked in self.roots.items()}
        sys.path[:] = [moved.get(place, place) for place in sys.path]
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(moved.get(place, place) for place in inherited)
        if here := moved.get(str(Path.cwd())):
            os.chdir(here)

    def remove(self) -> None:
        """Removes the copy; if a worker of this node still uses it, the next session does so."""
        if self._used is not None:
            self._used.close()
        _sweep(self.folder.parent, "")

    def _change(self, name: str, patch: Patch | None) -> None:
        root, _, inside = name.partition("/")
        target = self.folder / name
        if root not in self.roots or ".." in Path(inside).parts:
            raise PatchError(f"{name} is outside the uploaded folders")
        if patch is None:
            target.unlink(missing_ok=True)
            return
        source = self.roots[root] / inside
        content = patch.content(source.read_bytes() if source.is_file() else b"")
        if target.is_dir():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.new")
        new.write_bytes(content)
        new.chmod(0o755 if patch.executable else 0o644)
        # Python compares a source's seconds and size with its byte code, and saves may come within
        # a second: so the seconds are derived from the content.
        second = int(patch.digest[:7], 16)
        os.utime(new, (second, second))
        new.replace(target)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def of_node(session: str) -> Tree:
    """Return the copy of a session on this node, in a process of its job."""
    places = [Path(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    places = [place for place in (*places, *map(Path, sys.path)) if place.is_absolute()]
    resources = Path(__file__).parents[3]
    roots = {}
    for name, kind in UNPACKED.items():
        for place in places:
            if place.parent.name == kind and (name != MODULES or (place / PACKAGE).is_dir()):
                roots[name] = place
                break
    return Tree(resources / SESSIONS / session, roots)


def _shared(folder: Path) -> IO[str]:
    file = (folder / "used").open("w")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _sweep(sessions: Path, kept: str) -> None:
    for folder in sessions.iterdir():
        if folder.name == kept:
            continue
        try:
            with (folder / "used").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use, or just begun
            continue
