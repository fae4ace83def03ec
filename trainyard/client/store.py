"""The place of checkpoints and runs, seen from the client: a bucket or a folder."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.objects import regular_files

MARKER = b"trainyard pre-flight"


class AwayError(ClientError):
    """The store does not answer at the moment."""


class Listed(NamedTuple):
    """An object of a list.

    Attributes:
        size: bytes.
        tag: the content's MD5 where the store has it, else another text or "".
    """

    size: int
    tag: str


class Store(Protocol):
    """Reads and writes objects by key; keys are relative to the storage address."""

    url: str

    def put(self, key: str, content: bytes) -> None:
        """Writes an object."""

    def get(self, key: str) -> bytes | None:
        """Reads an object; None if it is missing."""

    def delete(self, key: str) -> None:
        """Removes an object."""

    def folders(self, prefix: str = "") -> list[str]:
        """Names directly below a prefix that have something below them."""

    def listed(self, prefix: str) -> dict[str, Listed]:
        """All objects below a prefix, by their names below it."""

    def part(self, key: str, first: int, size: int) -> bytes | None:
        """Reads bytes that an object has; None if it is missing."""


def open_store(outputs: StackOutputs) -> Store:
    """The store of a stack.

    Raises:
        ClientError: its address is of an unknown kind, or a folder of another machine.
    """
    address = urlsplit(outputs.storage_url)
    if outputs.keeps_files_away:
        raise ClientError(
            f"the results of stack {outputs.stack!r} are files, {outputs.storage_url} on "
            f"{outputs.away}: look at them there, or give the stack an object store"
        )
    if address.scheme == "file":
        return FolderStore(outputs.storage_url, Path(unquote(address.path)))
    if address.scheme == "s3":
        from trainyard.client.bucket import BucketStore  # noqa: PLC0415 - slow

        return BucketStore(outputs, address.netloc, address.path.strip("/"))
    raise ClientError(
        f"stack {outputs.stack!r} has storageUrl {outputs.storage_url!r}; "
        "only s3:// and file:// are known: update this client"
    )


def check(store: Store) -> None:
    """Puts, gets and deletes a marker.

    Raises:
        ClientError: one of the three failed.
    """
    key = f".trainyard/preflight-{uuid.uuid4().hex}"
    store.put(key, MARKER)
    try:
        if store.get(key) != MARKER:
            raise ClientError(
                f"{store.url} did not give back what was just written to {key}: "
                "another program changes it, or the store is broken; look at its log"
            )
    finally:
        store.delete(key)


class FolderStore:
    """A folder of this machine, for stacks without an object store."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._folder = folder

    def put(self, key: str, content: bytes) -> None:
        """Writes a file and the folders above it."""
        path = self._folder / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise self._failed("write", path, error) from None

    def get(self, key: str) -> bytes | None:
        """Reads a file."""
        path = self._folder / key
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", path, error) from None

    def delete(self, key: str) -> None:
        """Removes a file, and its folder once that is empty."""
        path = self._folder / key
        try:
            path.unlink(missing_ok=True)
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
        except OSError as error:
            raise self._failed("delete", path, error) from None

    def folders(self, prefix: str = "") -> list[str]:
        """Names of the folders below a prefix."""
        folder = self._folder / prefix
        if not folder.is_dir():
            return []
        return sorted(path.name for path in folder.iterdir() if path.is_dir())

    def listed(self, prefix: str) -> dict[str, Listed]:
        """Files below a prefix."""
        return {
            name: Listed(status.st_size, str(status.st_mtime_ns))
            for name, status in regular_files(self._folder / prefix)
        }

    def part(self, key: str, first: int, size: int) -> bytes | None:
        """Reads a part of a file."""
        path = self._folder / key
        try:
            with path.open("rb") as file:
                file.seek(first)
                return file.read(size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", path, error) from None

    def _failed(self, what: str, path: Path, error: OSError) -> ClientError:
        return ClientError(
            f"cannot {what} {path} ({error.strerror}): the storage {self.url} must be a folder "
            "that you and the Ray nodes may write; see `df` and `ls -ld` of it"
        )
