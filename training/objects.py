"""A run's folder in the store: whole files to and from a bucket or a folder, retried for a while.

A bucket goes through boto3, which cuts large files into parts and moves several at once; pyarrow
uploads one file after the other with one thread. Nothing here knows what the files are.
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

from training import archive

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

T = TypeVar("T")

# How long an object store that does not answer is waited for. Restarting one takes seconds.
PATIENCE_VARIABLE = "TRAINYARD_STORE_PATIENCE_S"
DEFAULT_PATIENCE_S = 120.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30  # of one part: a store that takes longer for it has stopped
PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 8
BLOCK_BYTES = 1024 * 1024
# Worth another try; others (no such bucket, wrong key, full disk) stay as they are.
PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
# versitygw answers so, too, if the last object of the same folder is deleted at that moment.
PASSING_CODE = "ExistingObjectIsDirectory"
DELETED_AT_ONCE = 1000  # S3's limit


class StorageError(Exception):
    """The store did not do what was asked within the time; the message says what to do."""


class AwayError(Exception):
    """The store did not answer, or not now: worth another try."""


class Digest(NamedTuple):
    """Size and digest, to notice damage."""

    size: int  # bytes
    sha256: str


class Source(Protocol):
    """A folder that is read. Names are relative to it and may have slashes."""

    where: str

    def sizes(self) -> dict[str, int]:
        """Bytes of each file below the folder."""

    def read(self, name: str) -> bytes:
        """A small file; FileNotFoundError if it does not exist."""

    def download(self, name: str, target: Path) -> Digest:
        """Fetches a file; FileNotFoundError if it does not exist."""


class Folder(Source, Protocol):
    """A folder of the store, which is also written.

    Every method raises StorageError when the store refuses, or stays away for too long.
    """

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file, which appears whole or not at all."""

    def upload(self, name: str, source: IO[bytes]) -> Digest:
        """Stores a file, hashed as it is read: from the beginning, and again at each new try."""

    def delete(self, *names: str) -> None:
        """Removes files; those that are gone are none the worse."""


def open_url(url: str) -> Folder:
    """The folder at s3://bucket[/prefix] or file:///path."""
    from pyarrow.fs import FileSystem  # noqa: PLC0415 - the client imports what imports this

    return open_folder(*FileSystem.from_uri(url))


def patiently(verb: str, what: str, action: Callable[[], T]) -> T:
    """What an action returns, tried again for a while where the store is away.

    Args:
        verb: what it does, for the message.
        what: the object's address, for the message.
        action: raises AwayError where another try may help.

    Raises:
        StorageError: the store stayed away.
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
                    f"({PATIENCE_VARIABLE}), last: {error}; what was stored before is as it was: "
                    "start the store, then submit the run again"
                ) from error
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def refusal(verb: str, what: str, status: int, said: str) -> Exception:
    """The error for a store that refuses.

    Args:
        verb: what it was to do.
        what: the object's address.
        status: of HTTP.
        said: by the store.

    Returns:
        AwayError where another try may help, else StorageError.
    """
    if status in PASSING_STATUS or PASSING_CODE in said:
        return AwayError(said)
    return StorageError(
        f"cannot {verb} {what}: {said}; what was stored before is as it was: mend the store, then "
        "submit the run again"
    )


def open_path(path: Path) -> Folder:
    """A folder of this machine; it need not be there yet."""
    return _LocalFolder(path.absolute())


def open_folder(files: FileSystem, path: str) -> Folder:
    """A folder of a pyarrow file system.

    Raises:
        ValueError: it is neither of S3 nor local.
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
        # Large objects need no signed body, which costs a pass: small ones have their sha256.
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
        with target.open("rb") as file:  # its parts came in any order
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
    """Names and status of the files below a folder; what is removed meanwhile is passed over."""
    for folder, _, names in os.walk(top):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    yield path.relative_to(top).as_posix(), status


class _LocalFolder:
    """Nothing is tried twice: a disk that fails once is not better in a moment."""

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
                f"cannot store {path}: {error}; what was stored before is as it was: make room "
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
    """A source that boto3 reads once and in order, since it has no seek: hashed on the way."""

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
    """One of a kind for the process: making it reads megabytes, and threads share it.

    Args:
        region: of the store.
        signs_bodies: the signature is of what is sent too, and not of its CRC32 only.
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
            proxies={},  # none: the store is the stack's own (training/s3_requests.py asks none)
            s3={"addressing_style": "path", "payload_signing_enabled": signs_bodies},
        ),
    )
