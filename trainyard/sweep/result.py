"""A point's output in the store: its result as JSON, and its files as an archive.

Nothing is pickled on the way back: the user's machine must not trust a node's files.
"""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainyard import json_values
from trainyard.errors import JobError
from trainyard.store import archive
from trainyard.store.objects import FolderStore

FOLDER = ".trainyard/sweeps"  # in the store; no run's name begins with a dot
MOST_BYTES = 256 * 2**20  # of a point's files: they pass through the memory of both sides
MOST_UNSTORED = 32 * 2**20  # likewise without a store: they stay in a node's folder of logs
LONGEST_TEXT = 1000  # characters of a value that JSON cannot represent


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a point."""

    completed: bool  # the function returned
    value: Any = None  # its return value, as JSON
    note: str = ""  # the missing part of the value or files; "" without one
    error: str = ""  # one line of the exception; "" without one


def keys(sweep: str, number: int, job: str) -> tuple[str, str]:
    """Return the storage keys of the result and the archive of one start of a point."""
    stem = f"{FOLDER}/{sweep}/{number}-{job}"
    return f"{stem}.json", f"{stem}.tar"


def write(result: Result) -> bytes:
    """Return a result as JSON, with NaN as Python writes it: Hydra's sweepers get it."""
    return json.dumps(asdict(result)).encode()


def parse_result(content: bytes) -> Result:
    """Return a result from JSON.

    Raises:
        ValueError: it is not a result.
    """
    try:
        found = json.loads(content)
        if not json_values.is_shallow(found):
            raise ValueError("it has too many levels")
        return Result(
            completed=found["completed"] is True,
            value=found["value"],
            note=str(found["note"]),
            error=str(found["error"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no result of a point: {type(error).__name__}") from None


def as_json(value: Any) -> tuple[Any, str]:
    """Return a value that JSON can represent.

    Returns:
        The value, and a note: "" or the names of parts that are returned as text only.
    """
    texts: list[str] = []
    try:
        found = _plain(value, "", texts)
        json.dumps(found)
    except (TypeError, ValueError, RuntimeError):  # RecursionError, and PyTorch's
        texts, found = [""], str(value)[:LONGEST_TEXT]
    odd = ascii(texts[:5])[1:-1] if any(texts) else f"a {type(value).__name__}"
    return found, f"{odd} is not JSON: its text is returned" if texts else ""


def _plain(value: Any, name: str, texts: list[str]) -> Any:
    """Return a value for JSON; adds the names of the parts that become text."""
    if isinstance(value, Mapping):
        above = f"{name}." if name else ""
        return {str(key): _plain(each, f"{above}{key}", texts) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(each, f"{name}[{index}]", texts) for index, each in enumerate(value)]
    try:
        return json_values.plain(value, name)
    except JobError:
        texts.append(name)
        return str(value)[:LONGEST_TEXT]


def unstored() -> FolderStore:
    """Return the folder with this process's log, whose files Ray's dashboard serves."""
    return FolderStore(Path("/proc/self/fd/1").readlink().parent)


def pack(folder: Path, most: int) -> tuple[bytes, str]:
    """Packs the files below a folder, small ones first, up to a number of bytes.

    Returns:
        A plain tar, and a note: "" or the omitted files.
    """
    files = sorted((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    packed, size, left = io.BytesIO(), 0, []
    # Links are packed as their targets: links are not unpacked.
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
        for count, file in enumerate(files, start=1):
            name = file.relative_to(folder).as_posix()
            size += file.stat().st_size
            if size > most or count > archive.MOST_FILES or archive.fault_of_name(name):
                left.append(name)
            else:
                tar.add(file, name)
    if not left:
        return packed.getvalue(), ""
    return packed.getvalue(), (
        f"{len(left)} files stay on the node: {ascii(left[:5])[1:-1]}; at most "
        f"{most // 2**20} MiB and {archive.MOST_FILES} files come back, with names of up to "
        f"{archive.LONGEST_NAME} bytes; write large files to the store"
    )
