"""What a point leaves in the store: how it ended as JSON, and its files as an archive.

Nothing is pickled on the way back: the user's machine reads what a node has written.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training import archive

FOLDER = ".trainyard/sweeps"  # in the store; no run's name begins with a dot
MOST_BYTES = 256 * 2**20  # of a point's files: they pass through the memory of both sides
LONGEST_TEXT = 1000  # characters of a value that JSON does not have


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a point ended.

    Attributes:
        completed: the function returned.
        value: what it returned, as JSON has it.
        note: what of the value or the files did not come along; "" where all did.
        error: one line of the exception; "" without one.
    """

    completed: bool
    value: Any = None
    note: str = ""
    error: str = ""


def keys(sweep: str, number: int, job: str) -> tuple[str, str]:
    """Where the result and the archive of one start of a point are, below the storage address."""
    stem = f"{FOLDER}/{sweep}/{number}-{job}"
    return f"{stem}.json", f"{stem}.tar"


def write(result: Result) -> bytes:
    """A result as JSON."""
    return json.dumps(asdict(result)).encode()


def read(content: bytes) -> Result:
    """A result from JSON.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(content)
        return Result(
            completed=found["completed"] is True,
            value=found["value"],
            note=str(found["note"]),
            error=str(found["error"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no result of a point: {type(error).__name__}") from None


def as_json(value: Any) -> tuple[Any, str]:
    """A returned value as JSON has it.

    Returns:
        The value, and a note: "" or why it is only the value's text.
    """
    try:
        plain = _plain(value)
        json.dumps(plain)
    except (TypeError, ValueError, RuntimeError):  # RecursionError, and PyTorch's
        kind = type(value).__name__
        return str(value)[:LONGEST_TEXT], f"a {kind} is no JSON: its text is returned"
    return plain, ""


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    # Numbers of NumPy and PyTorch; a tensor of more than one refuses.
    return value.item() if hasattr(value, "item") else value


def pack(folder: Path) -> tuple[bytes, str]:
    """The files below a folder, small ones first, as far as they stay below the limit.

    Returns:
        A plain tar, and a note: "" or what was left out.
    """
    files = sorted((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    packed, size, left = io.BytesIO(), 0, []
    # Links are packed as what they lead to: others are not unpacked.
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
        for count, file in enumerate(files, start=1):
            name = file.relative_to(folder).as_posix()
            size += file.stat().st_size
            if size > MOST_BYTES or count > archive.MOST_FILES or archive.fault_of_name(name):
                left.append(name)
            else:
                tar.add(file, name)
    if not left:
        return packed.getvalue(), ""
    return packed.getvalue(), (
        f"{len(left)} files stay on the node: {ascii(left[:5])[1:-1]}; at most "
        f"{MOST_BYTES // 2**20} MiB and {archive.MOST_FILES} files come back, with names of up to "
        f"{archive.LONGEST_NAME} bytes; write large files to the store"
    )
