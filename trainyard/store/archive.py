"""Unpacks archives of the store, which others may have written.

They are plain tar of regular files and folders. Python's `tarfile` follows more than that (links,
devices, sparse files, compression), reads headers of any size into memory, takes a damaged header
for the end of the archive, and guards against names that lead elsewhere only since 3.11.4.
"""

import hashlib
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MOST_FILES = 100_000  # files and folders of an archive
# Bytes of a name: as many as S3 and file systems accept, with room for the run's own name.
LONGEST_NAME = 768
PART = ".part"
LONGEST_PART = 255
LONGEST_HEADER = 8192  # bytes: names, times and owners that do not fit into the fixed fields
SCRATCH = ".unpacking"

_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 2**20  # bytes
_RECORD = re.compile(rb"([1-9][0-9]{0,8}) ([^=\n]{1,99})=")
# Python's tarfile also writes these: none of them decides what is unpacked.
_UNUSED = {"mtime", "uid", "gid", "uname", "gname"}


class ArchiveError(Exception):
    """An archive is damaged, or holds an entry that is not unpacked; the message says which."""


def unpack(archive: Path, target: Path, *, most_bytes: int) -> None:
    """Unpacks an archive: files appear whole, and only after all of them are read.

    Args:
        archive: a plain tar.
        target: a folder. Files of the same name are replaced.
        most_bytes: of all files together.

    Raises:
        ArchiveError: it is damaged, too large, or holds anything but files and folders inside.
        OSError: the folder does not accept them.
    """
    scratch = target / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed process
    scratch.mkdir()
    try:
        with archive.open("rb") as source:
            for entry in _entries(source, most_bytes):
                _write(source, entry, scratch)
        for path in sorted(scratch.rglob("*")):
            place = target / path.relative_to(scratch)
            if path.is_dir():
                place.mkdir(exist_ok=True)
            else:
                path.replace(place)
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        name = Path(error.filename2 or error.filename).name
        raise ArchiveError(f"{name[:80]!a} is there twice") from None
    finally:
        shutil.rmtree(scratch)


def fault_of_name(name: str) -> str:
    """Return why a name cannot be used for a file in a folder of ours; "" if it can."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:  # half a character, or bytes that are not text
        return "is not text"
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or set(parts) <= {"", "."} or "\0" in name:
        return "is not inside its folder"
    if len(encoded) > LONGEST_NAME or max(map(len, encoded.split(b"/"))) > LONGEST_PART:
        return (
            f"has {len(encoded)} bytes: at most {LONGEST_NAME} are possible, and {LONGEST_PART} "
            "between two slashes"
        )
    return ""


def part_of(name: str) -> str:
    """The hidden name of a file while it is written, however long its own name is."""
    encoded = name.encode()
    fits = len(encoded) + len(PART) < LONGEST_PART
    return f".{name if fits else hashlib.sha256(encoded).hexdigest()}{PART}"


def _entries(source: BinaryIO, most_bytes: int) -> Iterator[tarfile.TarInfo]:
    """Yields the header of each file and folder, with `source` at its content."""
    count = total = 0
    name = None  # of the next entry, where it is too long for its header
    while any(block := _read(source, _BLOCK)):
        try:
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise ArchiveError(f"it is damaged, or not a plain tar ({error})") from None
        if entry.type == tarfile.XHDTYPE and name is None and 0 <= entry.size <= LONGEST_HEADER:
            padded = _read(source, _padded(entry.size))
            name = _extended(padded[: entry.size])
            continue
        entry.name, name = name or entry.name, None
        shown = f"{entry.name[:80]!a}"
        if entry.type not in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}:
            raise ArchiveError(f"{shown} is not a regular file or folder")
        if fault := fault_of_name(entry.name):
            raise ArchiveError(f"the name {shown} {fault}")
        if entry.size < 0 or (entry.isdir() and entry.size):
            raise ArchiveError(f"{shown} cannot have {entry.size} bytes")
        count, total = count + 1, total + entry.size
        if count > MOST_FILES or total > most_bytes:
            raise ArchiveError(
                f"with {shown} it holds {count} files of {total} bytes, more than {MOST_FILES} or "
                f"{most_bytes} bytes"
            )
        yield entry


def _extended(content: bytes) -> str:
    """Returns the name in an extended header (pax); "" if it has none."""
    name = ""
    while content:
        record = _RECORD.match(content)
        length = int(record[1]) if record else 0
        if not record or length <= record.end() or content[length - 1 : length] != b"\n":
            raise ArchiveError("it is damaged: an extended header cannot be read")
        key = record[2].decode(errors="replace")
        if key == "path":
            name = content[record.end() : length - 1].decode(errors="surrogateescape")
        elif key not in _UNUSED:
            raise ArchiveError(f"an extended header has {key!a}, which is not unpacked")
        content = content[length:]
    return name


def _write(source: BinaryIO, entry: tarfile.TarInfo, folder: Path) -> None:
    path = folder / entry.name
    if entry.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for start in range(0, entry.size, _CHUNK):
            file.write(_read(source, min(_CHUNK, entry.size - start)))
    _read(source, _padded(entry.size) - entry.size)


def _read(source: BinaryIO, size: int) -> bytes:
    content = source.read(size)
    if len(content) != size:
        raise ArchiveError("it is cut off")
    return content


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
