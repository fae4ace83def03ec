"""The files of a run beside its checkpoints, as the store has them."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path, PurePosixPath
from typing import Any

from client.pull import marks
from client.pull.source import RunSource
from client.store import Listed
from training import archive
from training.checkpoint_files import PREFIX

# States of the files that were fetched: tags of buckets are digests of small objects only.
KNOWN = ".records.json"


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
    changed, known = 0, _read_known(folder)
    before = dict(known)
    try:
        for name in source.files:
            changed += _pull(source, folder, name, known)
    finally:
        if known != before:
            part = folder / archive.part_of(KNOWN)
            part.write_text(json.dumps(known))
            part.replace(folder / KNOWN)
    return changed


def _pull(source: RunSource, folder: Path, name: str, known: dict[str, Any]) -> bool:
    """Brings a file if it is a record that has changed; whether it has."""
    if not _is_record(name):
        return False
    path, listed = folder / name, source.files[name]
    # A bucket can hold both `a` and `a/b`; a folder here cannot.
    below = any(str(parent) in source.files for parent in PurePosixPath(name).parents)
    state = _state(path, listed)
    if below or (state is not None and known.get(name) == state):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(archive.part_of(path.name))
    part.unlink(missing_ok=True)  # of another content, perhaps
    try:
        source.download(name, part)
    except FileNotFoundError:  # the run has removed it
        part.unlink()
        return False
    changed = not path.exists() or not filecmp.cmp(part, path, shallow=False)
    part.replace(path)
    known[name] = _state(path, listed)
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


def _state(path: Path, listed: Listed) -> list[Any] | None:
    """What there is in the store and here; None where one of them does not tell."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [*listed, status.st_size, status.st_mtime_ns] if listed.tag else None


def _read_known(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / KNOWN).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
