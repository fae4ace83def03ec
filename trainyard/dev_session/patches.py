"""Differences between files and their form at a session's start, and messages with them.

A file's patch names pieces of the file that the cluster has, and holds only the rest. Each is
relative to the session's beginning, so a patch does not depend on the ones before it.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Any

BLOCK_BYTES = 16 * 1024
DIGEST_BYTES = 16
LENGTH_BYTES = 4


class PatchError(Exception):
    """A patch does not fit the file that it is for."""


@dataclass(frozen=True)
class FileSummary:
    """A summary of a file: its size in bytes, and digests of its blocks.

    Blocks counted from the start find edits in place; those counted from the end, the text after an
    insertion.
    """

    size: int
    from_start: tuple[bytes, ...]
    from_end: tuple[bytes, ...]


@dataclass(frozen=True)
class Patch:
    """A file."""

    # its content: pairs (offset, length) of the base, or bytes
    parts: tuple[tuple[int, int] | bytes, ...]
    digest: str  # SHA-256 of the whole file, in hex
    executable: bool  # whether its owner may run it

    def content(self, base: bytes) -> bytes:
        """Return the file, made from its form at the session's start.

        Raises:
            PatchError: the patch was made for another file.
        """
        made = b"".join(
            part if isinstance(part, bytes) else base[part[0] : sum(part)] for part in self.parts
        )
        if sha256(made).hexdigest() != self.digest:
            raise PatchError("the session began with a different file than this node has")
        return made


Changes = Mapping[str, Patch | None]
"""By path; None for a removed file."""


def blocks(content: bytes) -> FileSummary:
    """Return the summary of a file."""
    view, count = memoryview(content), len(content) // BLOCK_BYTES
    starts = [i * BLOCK_BYTES for i in range(count)]
    ends = [len(content) - (i + 1) * BLOCK_BYTES for i in range(count)]
    return FileSummary(
        len(content),
        tuple(_digest(view, start) for start in starts),
        tuple(_digest(view, start) for start in ends),
    )


def patch(content: bytes, base: FileSummary | None, *, executable: bool) -> Patch:
    """Return the patch from a base to a file; the base is None for a new file."""
    parts: list[tuple[int, int] | bytes] = []
    at = 0
    for position, offset in _copies(content, base):
        skip = max(0, at - position)  # a block from the end may overlap one from the start
        if skip >= BLOCK_BYTES:
            continue
        start, length = offset + skip, BLOCK_BYTES - skip
        if position > at:
            parts.append(content[at:position])
        last = parts[-1] if parts else b""
        if isinstance(last, tuple) and sum(last) == start:
            parts[-1] = (last[0], last[1] + length)
        else:
            parts.append((start, length))
        at = position + BLOCK_BYTES
    if at < len(content):
        parts.append(content[at:])
    return Patch(tuple(parts), sha256(content).hexdigest(), executable)


def pack(header: Mapping[str, Any], changes: Changes) -> bytes:
    """Return a message: a JSON object, and changed files."""
    literals: list[bytes] = []
    described: dict[str, Any] = {}
    for name, each in changes.items():
        if each is None:
            described[name] = None
            continue
        literals += [part for part in each.parts if isinstance(part, bytes)]
        lengths = [[len(part)] if isinstance(part, bytes) else part for part in each.parts]
        described[name] = [lengths, each.digest, each.executable]
    text = json.dumps({**header, "changes": described}).encode()
    return zlib.compress(b"".join([len(text).to_bytes(LENGTH_BYTES), text, *literals]), 1)


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, Patch | None]]:
    """Return the JSON object and the changed files of a message."""
    content = zlib.decompress(message)
    at = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES])
    header = json.loads(content[LENGTH_BYTES:at])
    changes: dict[str, Patch | None] = {}
    for name, described in header.pop("changes").items():
        if described is None:
            changes[name] = None
            continue
        lengths, digest, executable = described
        parts: list[tuple[int, int] | bytes] = []
        for each in lengths:
            if len(each) == 1:
                parts.append(content[at : at + each[0]])
                at += each[0]
            else:
                parts.append((each[0], each[1]))
        changes[name] = Patch(tuple(parts), digest, executable)
    return header, changes


def _copies(content: bytes, base: FileSummary | None) -> Iterator[tuple[int, int]]:
    """Yields the positions of the base's blocks in a file, with their offsets there, in order."""
    if base is None:
        return
    view, shift = memoryview(content), len(content) - base.size
    count = len(base.from_start)
    found = {
        start: start
        for start, digest in zip(range(0, base.size, BLOCK_BYTES), base.from_start, strict=False)
        if _digest(view, start) == digest
    }
    for i in range(count):
        offset = base.size - (i + 1) * BLOCK_BYTES
        position = offset + shift
        if position >= 0 and _digest(view, position) == base.from_end[i]:
            found.setdefault(position, offset)
    yield from sorted(found.items())


def _digest(view: memoryview, start: int) -> bytes:
    return blake2b(view[start : start + BLOCK_BYTES], digest_size=DIGEST_BYTES).digest()
