"""A run's folder in the store: moves whole files to and from a bucket or folder, with retries.

A bucket goes through boto3, which cuts large files into parts and moves several at once; pyarrow
uploads one file after the other with one thread. Nothing here knows the files' meaning.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from trainyard import archive

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

T = TypeVar("T")

# How long to wait for an object store that does not answer. Restarting one takes seconds.
PATIENCE_VARIABLE = "TRAINYARD_STORE_PATIENCE_S"
DEFAULT_PATIENCE_S = 120.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30  # for one part: a store that takes longer has stopped
PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 8
BLOCK_BYTES = 1024 * 1024
# Worth another try; other errors (no such bucket, wrong key, full disk) persist.
PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
# versitygw also answers this if the last object of the same folder is deleted at that moment.
PASSING_CODE = "ExistingObjectIsDirectory"
DELETED_AT_ONCE = 1000  # S3's limit


class StorageError(Exception):
    """The store did not do the task in time; the message says what to do."""


class AwayError(Exception):
    """The store did not answer, or is busy: worth another try."""


class Digest(NamedTuple):
    """Size and digest, to notice damage."""

    size: int  # bytes
    sha256: str


class Source(Protocol):
    """A readable folder. Names are relative to it and may have slashes."""

    where: str

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file below the folder."""

    def read(self, name: str) -> bytes:
        """Reads a small file; FileNotFoundError if it does not exist."""

    def download(self, name: str, target: Path) -> Digest:
        """Fetches a file; FileNotFoundError if it does not exist."""


class Folder(Source, Protocol):
    """A folder of the store that can also be written.

    Every method raises StorageError when the store refuses, or is unavailable for too long.
    """

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file, which appears whole or not at all."""

    def upload(self, name: str, source: IO[bytes]) -> Digest:
        """Stores a file, hashed as it is read: from the beginning, and again at each new try."""

    def delete(self, *names: str) -> None:
        """Removes files; missing ones are ignored."""


def open_url(url: str) -> Folder:
    """Return the folder at s3://bucket[/prefix] or file:///path."""
    from pyarrow.fs import FileSystem  # noqa: PLC0415 - the client imports this module

    return open_folder(*FileSystem.from_uri(url))


def patiently(verb: str, what: str, action: Callable[[], T]) -> T:
    """Return an action's result; retries for a while if the store is unavailable.

    Args:
        verb: for the message.
        what: the object's address, for the message.
        action: raises AwayError where another try may help.

    Raises:
        StorageError: the store stayed unavailable.
    """
    failed, pause = None, FIRST_PAUSE_S
    patience = float(os.environ.get(PATIENCE_VARIABLE, DEFAULT_PATIENCE_S))
    while True:
        try:
            return action()
        except AwayError as error:
            # A large upload may have taken longer before it failed for the first time.
            now = time.monotonic()
            failed = now if failed is None else failed
            if now - failed + pause > patience:
                raise StorageError(
                    f"cannot {verb} {what}: the store did not do it within {patience:g} s "
                    f"({PATIENCE_VARIABLE}), last: {error}; earlier files are unchanged: "
                    "start the store, then submit the run again"
                ) from error
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def refusal(verb: str, what: str, status: int, said: str) -> Exception:
    """Return the error for a store that refuses.

    Args:
        verb: the refused action.
        what: the object's address.
        status: of HTTP.
        said: the store's message.

    Returns:
        AwayError where another try may help, otherwise StorageError.
    """
    if status in PASSING_STATUS or PASSING_CODE in said:
        return AwayError(said)
    return StorageError(
        f"cannot {verb} {what}: {said}; earlier files are unchanged: repair the store, then "
        "submit the run again"
    )


def open_path(path: Path) -> Folder:
    """Return a folder of this machine; it need not exist yet."""
    return _LocalFolder(path.absolute())


def open_folder(files: FileSystem, path: str) -> Folder:
    """Return a folder of a pyarrow file system.

    Raises:
        ValueError: it is neither S3 nor local.
    """
    if files.type_name == "s3":
        bucket, _, prefix = path.partition("/")
        return _BucketFolder(files.region, bucket, prefix.rstrip("/"))
    if files.type_name == "local":
        return _LocalFolder(Path(path))
    raise ValueError(
        f"a store of kind {files.type_name!r} is not known: give the stack one at s3:// or file://"
    )


class _BucketFolder:
    def __init__(self, region: str, bucket: str, prefix: str) -> None:
        self.where = f"s3://{bucket}/{prefix}"
        self._client = _client(region, signs_bodies=True)
        # Large objects do not sign their body, which costs a pass; small ones do.
        self._bulk = _client(region, signs_bodies=False)
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def sizes(self) -> dict[str, int]:
        def list_all() -> dict[str, int]:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix
            )
            return {
                each["Key"].removeprefix(self._prefix): each["Size"]
                for page in pages
                for each in page.get("Contents", [])
                if not each["Key"].endswith("/")  # pyarrow's mark of a folder
            }

        return self._patiently("list", "", list_all)

    def read(self, name: str) -> bytes:
        def get() -> bytes:
            return bytes(self._client.get_object(**self._at(name))["Body"].read())

        return self._patiently("read", name, get)

    def write(self, name: str, content: bytes) -> None:
        self._patiently(
            "write", name, lambda: self._client.put_object(**self._at(name), Body=content)
        )

    def upload(self, name: str, source: IO[bytes]) -> Digest:
        from boto3.s3.transfer import TransferConfig  # noqa: PLC0415

        config = TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=PART_BYTES,
            max_concurrency=PARTS_AT_ONCE,
        )

        def send() -> Digest:
            source.seek(0)
            hashed = _Hashed(source)
            self._bulk.upload_fileobj(hashed, **self._at(name), Config=config)
            return hashed.digest()

        return self._patiently("store", name, send)

    def download(self, name: str, target: Path) -> Digest:
        def get() -> None:
            self._client.download_file(**self._at(name), Filename=str(target))

        self._patiently("fetch", name, get)
        with target.open("rb") as file:  # parts arrive in any order
            return _copy(file, None)

    def delete(self, *names: str) -> None:
        for first in range(0, len(names), DELETED_AT_ONCE):
            some = [{"Key": self._prefix + name} for name in names[first : first + DELETED_AT_ONCE]]
            request = {"Objects": some, "Quiet": True}
            remove = functools.partial(self._client.delete_objects, Bucket=self._bucket)
            self._patiently("delete", names[first], functools.partial(remove, Delete=request))

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    def _patiently(self, verb: str, name: str, action: Callable[[], T]) -> T:
        from boto3.exceptions import Boto3Error  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        what = f"{self.where}/{name}".rstrip("/")

        def tried() -> T:
            try:
                return action()
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                if status == 404 and error.response["Error"]["Code"] != "NoSuchBucket":
                    raise FileNotFoundError(what) from None
                raise refusal(verb, what, status, str(error)) from error
            except (BotoCoreError, Boto3Error) as error:
                raise AwayError(str(error)) from error

        return patiently(verb, what, tried)


def regular_files(top: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yields name and status of the files below a folder; skips files removed meanwhile."""
    for folder, _, names in os.walk(top):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    yield path.relative_to(top).as_posix(), status


class _LocalFolder:
    """Never retries: a disk that failed does not recover in a moment."""

    def __init__(self, path: Path) -> None:
        self.where = path.as_uri()
        self._path = path

    def sizes(self) -> dict[str, int]:
        return {name: status.st_size for name, status in regular_files(self._path)}

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        with tempfile.SpooledTemporaryFile() as source:
            source.write(content)
            self.upload(name, source)

    def upload(self, name: str, source: IO[bytes]) -> Digest:
        path = self._path / name
        part = path.with_name(archive.part_of(path.name))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            source.seek(0)
            with part.open("wb") as target:
                digest = _copy(source, target)
                target.flush()
                os.fsync(target.fileno())
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise StorageError(
                f"cannot store {path}: {error}; earlier files are unchanged: make room "
                "there, or give the folder to the user that Ray runs as, then submit the run again"
            ) from error
        return digest

    def download(self, name: str, target: Path) -> Digest:
        with (self._path / name).open("rb") as source, target.open("wb") as copy:
            return _copy(source, copy)

    def delete(self, *names: str) -> None:
        for name in names:
            path = self._path / name
            path.unlink(missing_ok=True)
            for parent in path.relative_to(self._path).parents[:-1]:
                folder = self._path / parent
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()


class _Hashed:
    """A source hashed while boto3 reads it: once and in order, because it has no seek."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._hash = hashlib.sha256()
        self._size = 0

    def read(self, size: int = -1) -> bytes:
        block = self._source.read(size)
        self._hash.update(block)
        self._size += len(block)
        return block

    def digest(self) -> Digest:
        return Digest(self._size, self._hash.hexdigest())


def _copy(source: IO[bytes], target: IO[bytes] | None) -> Digest:
    hashed = _Hashed(source)
    while block := hashed.read(BLOCK_BYTES):
        if target is not None:
            target.write(block)
    return hashed.digest()


@functools.cache
def _client(region: str, *, signs_bodies: bool) -> Any:
    """Return the process's client of a kind: making it reads megabytes, and threads share it.

    Args:
        region: of the store.
        signs_bodies: the signature covers the content, not only its CRC32.
    """
    import boto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    # Endpoint and key come from the node's environment, as pyarrow's do.
    return boto3.session.Session().client(
        "s3",
        region_name=region,
        config=Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 2},
            max_pool_connections=PARTS_AT_ONCE + 2,
            proxies={},  # none, as in trainyard/s3_requests.py: the store is the stack's own
            s3={"addressing_style": "path", "payload_signing_enabled": signs_bodies},
        ),
    )
