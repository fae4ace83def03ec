"""The files of a run except its checkpoints, as the store has them."""

import filecmp
import json
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from trainyard import json_values
from trainyard.client.pull import marks
from trainyard.client.pull.source import RunSource
from trainyard.resume.checkpoint_files import PREFIX
from trainyard.store import archive
from trainyard.store.objects import Listed
from trainyard.tracking import run_folder

# States of the files that were fetched: tags of buckets are digests of small objects only.
KNOWN = ".records.json"


def pull(source: RunSource, folder: Path, *, whole: bool = False) -> int:
    """Brings changed files of a run that was listed, each whole or not at all.

    With `whole` checkpoints come too, one file after the other. They are not verified.

    Returns:
        The number of changed files.

    Raises:
        OSError: a file cannot be written.
    """
    changed, known = 0, _read_known(folder)
    before = dict(known)
    try:
        for name in source.files:
            if _is_record(name, whole=whole):
                changed += _pull(source, folder, name, known)
    finally:
        if known != before:
            part = folder / archive.part_of(KNOWN)
            part.write_text(json.dumps(known))
            part.replace(folder / KNOWN)
    return changed


def _pull(source: RunSource, folder: Path, name: str, known: dict[str, Any]) -> bool:
    """Brings a file if it has changed; returns whether it had."""
    path, listed = (folder / name).resolve(), source.files[name]  # of a user's link
    # A bucket can hold both `a` and `a/b`; a folder here cannot.
    below = any(str(parent) in source.files for parent in PurePosixPath(name).parents)
    state = _state(path, listed)
    if below or (state is not None and known.get(name) == state):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(archive.part_of(path.name))
    part.unlink(missing_ok=True)  # perhaps with other content
    try:
        source.download(name, part)
    except FileNotFoundError:  # the run has removed it
        part.unlink()
        return False
    changed = not path.exists() or not filecmp.cmp(part, path, shallow=False)
    part.replace(path)
    known[name] = _state(path, listed)
    return changed


def _is_record(name: str, *, whole: bool = False) -> bool:
    """Whether it is outside checkpoints, not hidden, and has a name that is possible here.

    Any writer of the bucket names its objects.
    """
    parts = name.split("/")
    hidden = (".",) if whole or parts[0] == run_folder.OUTPUT else (".", PREFIX)
    return (
        name not in marks.ALL
        and not archive.fault_of_name(name)
        and all(part and not part.startswith(hidden) for part in parts)
    )


def _state(path: Path, listed: Listed) -> list[Any] | None:
    """The state in the store and here; None if one of them is unknown."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [*listed, status.st_size, status.st_mtime_ns] if listed.tag else None


def _read_known(folder: Path) -> dict[str, Any]:
    with suppress(OSError):
        return json_values.parse_object((folder / KNOWN).read_bytes()) or {}
    return {}
