"""The files of a run beside its checkpoints, as the store has them."""

from __future__ import annotations

import filecmp
import hashlib
from pathlib import Path, PurePosixPath

from client.pull import marks
from client.pull.source import RunSource
from client.store import Listed
from training import archive
from training.checkpoint_files import PREFIX

PART = ".part"


def pull(source: RunSource, folder: Path) -> int:
    """Brings what has changed, each file whole or not at all.

    Args:
        source: the run, listed.
        folder: of the run on this machine.

    Returns:
        How many files have changed.

    Raises:
        OSError: a file cannot be written.
    """
    changed = 0
    for name, listed in source.files.items():
        path = folder / name
        # A bucket can hold both `a` and `a/b`; a folder here cannot.
        below = any(str(parent) in source.files for parent in PurePosixPath(name).parents)
        if below or not _is_record(name) or _is_here(path, listed):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}{PART}")
        part.unlink(missing_ok=True)  # of another content, perhaps
        try:
            source.download(name, part)
        except FileNotFoundError:  # the run has removed it
            part.unlink()
            continue
        if path.exists() and filecmp.cmp(part, path, shallow=False):
            part.unlink()
        else:
            part.replace(path)
            changed += 1
    return changed


def _is_record(name: str) -> bool:
    """Whether it is none of a checkpoint, none that is hidden, and a name that can be one here.

    Whoever can write the bucket names its objects.
    """
    parts = name.split("/")
    return (
        name not in marks.ALL
        and not archive.fault_of_name(name)
        and all(part and not part.startswith((".", PREFIX)) for part in parts)
    )


def _is_here(path: Path, listed: Listed) -> bool:
    if not listed.tag or not path.is_file() or path.stat().st_size != listed.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, _md5).hexdigest() == listed.tag


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)
