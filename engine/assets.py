"""Assets and archives: files and texts that inputs are made of, and their hashes as Pulumi's.

Either engine compares them by hash alone, so the same content under another path is no change.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from engine.errors import EngineError, UnsupportedError

SIGNATURE = "4dabf18193072939515e22adb298388d"  # key that marks a special value
ASSET = "c44067f5952c0a294b673a41bacd8c17"  # its value for a file or a text
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"  # its value for a folder or a packed file
PACKED = (".tar", ".tgz", ".tar.gz", ".zip", ".jar")  # archives that are taken as they are
BLOCK = 512  # bytes, of which a tar is made
LONGEST_NAME = 100  # bytes of a name in a plain tar header


def is_asset(value: Any) -> bool:
    """True for an asset or an archive."""
    return isinstance(value, dict) and value.get(SIGNATURE) in (ASSET, ARCHIVE)


def with_hash(value: dict[str, Any]) -> dict[str, Any]:
    """The asset or archive with its hash.

    Raises:
        EngineError: it cannot be read.
        UnsupportedError: it is neither a text, a file nor a folder.
    """
    if isinstance(text := value.get("text"), str):
        return value | {"hash": hashlib.sha256(text.encode()).hexdigest()}
    if not isinstance(path := value.get("path"), str):
        raise UnsupportedError("assets from a URL, and archives of assets")
    try:
        if value[SIGNATURE] == ASSET or path.endswith(PACKED):
            with Path(path).open("rb") as file:
                return value | {"hash": hashlib.file_digest(file, "sha256").hexdigest()}
        return value | {"hash": _folder_hash(Path(path))}
    except OSError as error:
        raise EngineError(f"the asset {path} cannot be read: {error.strerror}") from None


def by_hash(value: Any) -> Any:
    """The value as it is compared: of an asset or archive the hash alone."""
    if is_asset(value):
        return {SIGNATURE: value[SIGNATURE], "hash": value.get("hash")}
    if isinstance(value, dict):
        return {key: by_hash(item) for key, item in value.items()}
    return [by_hash(item) for item in value] if isinstance(value, list) else value


def _folder_hash(folder: Path) -> str:
    """The hash of the tar that Pulumi makes of a folder."""
    digest = hashlib.sha256()
    for path in _files(folder):
        name = path.relative_to(folder).as_posix().encode()
        if len(name) > LONGEST_NAME or not name.isascii():
            raise UnsupportedError(f"names as that of {path}, over 100 bytes or not ASCII,")
        content = path.read_bytes()
        digest.update(_tar_header(name, len(content)))
        digest.update(content + bytes(-len(content) % BLOCK))
    digest.update(bytes(2 * BLOCK))
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    """Files in Pulumi's order, without its own folder and links to folders."""
    found: list[Path] = []
    for entry in sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name)):
        if entry.name == ".pulumi":
            continue
        if entry.is_dir(follow_symlinks=False):
            found += _files(Path(entry.path))
        elif not entry.is_dir():
            found.append(Path(entry.path))
    return found


def _tar_header(name: bytes, size: int) -> bytes:
    """As Go writes it: no owner, no time; Python's own differs in the device numbers."""
    fields = [
        name.ljust(LONGEST_NAME, b"\0"),
        b"0000600\0" + b"0000000\0" * 2,  # mode, user, group
        b"%011o\0" % size + b"00000000000\0",  # size, time
        b" " * 8,  # checksum
        b"0".ljust(101, b"\0"),  # a file, no link
        b"ustar\00000".ljust(72, b"\0"),  # magic and version, names of user and group
        b"0000000\0" * 2,  # device
    ]
    header = b"".join(fields).ljust(BLOCK, b"\0")
    checksum = b"%06o\0 " % sum(header)
    return header[:148] + checksum + header[156:]
