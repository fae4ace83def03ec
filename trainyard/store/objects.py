"""The store of results: a folder or a bucket, with the same methods for jobs, nodes and the client.

Small files of a bucket are requests of their own (trainyard/store/s3_requests.py): boto3 takes a
second of processor time to import and make. Whole files go through boto3, which cuts large ones
into parts and moves several at once. Nothing here knows the files' meaning.
"""

# ruff: noqa: D102 - Store documents the methods of both kinds

from __future__ import annotations

import functools
import hashlib
import io
import os
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, unquote_plus, urlsplit

from trainyard.store import archive

if TYPE_CHECKING:
    from xml.etree import ElementTree as ET

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
MOST_BYTES = 16 * 2**20  # of a small file: anyone who can write to the store makes it longer
MOST_STATE_BYTES = 2**30  # of a search's state and results, with all its trials
# Worth another try; other errors (no such bucket, wrong key, full disk) persist.
PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
MISSING = ("NoSuchKey", "404")  # the latter of boto3, where the answer has no text
EXISTING = ("PreconditionFailed", "ConditionalRequestConflict")  # the latter: it is being written
S3 = "s3://"


class StorageError(Exception):
    """The store did not do the task in time; the message says what to do."""


class RefusedError(StorageError):
    """A bucket's service refuses: keys, name or region are wrong, say."""


class AwayError(Exception):
    """The store did not answer, or is busy: worth another try."""


class Digest(NamedTuple):
    """Size and digest, to notice damage."""

    size: int  # bytes
    sha256: str


class Listed(NamedTuple):
    """A file of a list."""

    size: int  # bytes
    tag: str  # changes with the content; the content's MD5 where a bucket has it; may be ""


class Keys(NamedTuple):
    """Access key and secret key of a bucket."""

    access: str
    secret: str


class Readable(Protocol):
    """Content that is read to its end, perhaps more than once."""

    def seek(self, first: int, /) -> object:
        """Goes back to a byte."""

    def read(self, size: int = -1, /) -> bytes:
        """Reads on, at most so many bytes; b"" at the end."""


class StoreReader(Protocol):
    """A readable part of a store. Names are relative to it and may have slashes."""

    where: str

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file."""

    def read(self, name: str) -> bytes:
        """Reads a small file; FileNotFoundError if it does not exist."""

    def download(self, name: str, target: Path) -> Digest:
        """Fetches a file; FileNotFoundError if it does not exist."""


class Store(ABC):
    """A folder or a bucket. Names are relative to it and may have slashes.

    Every method raises StorageError when the store refuses, or is unavailable for too long.
    """

    where: str  # its address
    refusal: type[Exception] = StorageError  # the kind of error for a small file that is too large

    @abstractmethod
    def listed(self, prefix: str = "") -> dict[str, Listed]:
        """Return all files below a prefix, by their names below it."""

    @abstractmethod
    def folders(self, prefix: str = "") -> list[str]:
        """Return the names directly below a prefix that have something below them."""

    def read(self, name: str, most: int = MOST_BYTES) -> bytes:
        """Reads a small file, no longer than a bound; FileNotFoundError if it does not exist."""
        content = self._read(name, most + 1)
        if len(content) > most:
            raise self.refusal(
                f"{self.where}/{name} has more than {most >> 20} MiB, which are not read: look at "
                "who wrote it, then move it away"
            )
        return content

    @abstractmethod
    def _read(self, name: str, most: int) -> bytes:
        """Reads the beginning of a file; FileNotFoundError if it does not exist."""

    @abstractmethod
    def part(self, name: str, first: int, size: int) -> bytes:
        """Reads bytes that a file has; FileNotFoundError if it does not exist."""

    @abstractmethod
    def download(self, name: str, target: Path) -> Digest:
        """Fetches a file; FileNotFoundError if it does not exist."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Writes a small file, which appears whole or not at all."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Writes a new small file, or one writer of several; FileExistsError for the others."""

    @abstractmethod
    def upload(self, name: str, source: Readable) -> Digest:
        """Stores a file, hashed as it is read: from the beginning, and again at each new try."""

    @abstractmethod
    def delete(self, *names: str) -> None:
        """Removes files; missing ones are ignored."""

    def get(self, name: str, most: int = MOST_BYTES) -> bytes | None:
        """Reads a small file, no longer than a bound; None if it does not exist."""
        try:
            return self.read(name, most)
        except FileNotFoundError:
            return None

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file."""
        return {name: each.size for name, each in self.listed().items()}

    def is_ours(self, name: str) -> bool:  # noqa: ARG002 - no bucket can tell
        """Return whether nobody but this user can have written a file."""
        return False


def open_url(url: str) -> Store:
    """Return the store at s3://bucket[/prefix] or file:///path.

    Endpoint and keys of a bucket are those of the environment, as for pyarrow.

    Raises:
        ValueError: it is of another kind.
    """
    address = urlsplit(url)
    if address.scheme == "s3":
        path, region = unquote(url.removeprefix(S3)), os.environ.get("AWS_REGION", "")
        return BucketStore(path, endpoint=environments_endpoint(region), region=region)
    if address.scheme == "file":
        return FolderStore(Path(unquote(address.path)))
    raise _unknown(address.scheme)


def open_folder(files: FileSystem, path: str) -> Store:
    """Return the store in a folder of a pyarrow file system.

    Raises:
        ValueError: it is neither S3 nor local.
    """
    files = getattr(files, "store_files", files)  # of trainyard/resume/controller_files.py
    if files.type_name == "s3":
        return BucketStore(path, endpoint=environments_endpoint(files.region), region=files.region)
    if files.type_name == "local":
        return FolderStore(Path(path))
    raise _unknown(files.type_name)


def environments_endpoint(region: str) -> str:
    """Return the URL of the store that the environment names, by default Amazon's of a region."""
    amazon = f"https://s3.{region or 'us-east-1'}.amazonaws.com"
    return os.environ.get("AWS_ENDPOINT_URL") or amazon


def patience_s() -> float:
    """Return how long a store is waited for, in seconds."""
    return float(os.environ.get(PATIENCE_VARIABLE, DEFAULT_PATIENCE_S))


def retry(action: Callable[[], T], patience: float, waiting: Callable[[], None] | None = None) -> T:
    """Return an action's result; tries again while the store is away.

    The patience, in seconds, begins with the first failure. `waiting` is called once, before the
    first pause.

    Raises:
        AwayError: the store stayed unavailable.
    """
    failed, pause = None, FIRST_PAUSE_S
    while True:
        try:
            return action()
        except AwayError:
            # A large upload may have taken longer before it failed for the first time.
            now = time.monotonic()
            failed = now if failed is None else failed
            if now - failed + pause > patience:
                raise
        if waiting is not None and pause == FIRST_PAUSE_S:
            waiting()
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


class BucketStore(Store):
    """A bucket, below a prefix."""

    # Seconds without a byte of an answer about a small file; None: READ_TIMEOUT_S.
    answer_s: float | None = None
    waits = True  # for a store that is away
    error: type[Exception] = StorageError  # if the settings of the environment cannot be used
    # What to do after a refusal.
    advice = "earlier files are unchanged: repair the store, then submit the run again"

    def __init__(
        self,
        path: str,
        *,
        endpoint: str,
        region: str = "",
        keys: Keys | None = None,
        elsewhere: bool = False,
    ) -> None:
        """Asks nothing yet.

        The path is bucket[/prefix]. Without a region all stores have a default, and without keys
        those of the environment are used. `elsewhere` tells that it is no stack's own store: a
        proxy of the environment is asked, and only checksums are used that all services know.
        """
        from botocore.credentials import ReadOnlyCredentials  # noqa: PLC0415 - folders need none

        from trainyard.store.s3_requests import REGION, Requests  # noqa: PLC0415

        bucket, _, prefix = path.strip("/").partition("/")
        self.where = f"{S3}{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._keys = keys
        self._region = region or REGION
        found = ReadOnlyCredentials(*keys, None) if keys else self._set_up(_environments_keys)
        self._elsewhere = elsewhere
        self._requests = Requests(endpoint, bucket, found, self._region, elsewhere=elsewhere)

    def listed(self, prefix: str = "") -> dict[str, Listed]:
        start = self._below(prefix)
        found = {}
        for page in self._pages(start):
            for each in page.findall("{*}Contents"):
                key, size, tag = (each.findtext(f"{{*}}{x}") or "" for x in ("Key", "Size", "ETag"))
                name = unquote_plus(key).removeprefix(start)
                if name and not name.endswith("/"):  # not a folder's marker
                    found[name] = Listed(
                        int(size) if size.isdecimal() and len(size) < 20 else 0, tag.strip('"')
                    )
        return found

    def folders(self, prefix: str = "") -> list[str]:
        start = self._below(prefix)
        found = [
            name
            for page in self._pages(start, delimiter="/")
            for name in _texts(page, "{*}CommonPrefixes/{*}Prefix")
        ]
        return sorted(unquote_plus(name).removeprefix(start).rstrip("/") for name in found)

    def _read(self, name: str, most: int) -> bytes:
        return self._ask("read", "GET", name, most=most)

    def part(self, name: str, first: int, size: int) -> bytes:
        headers = {"Range": f"bytes={first}-{first + size - 1}"}
        most = size + MOST_BYTES  # a refusal may be longer than the part
        return self._ask("read", "GET", name, headers=headers, timeout=READ_TIMEOUT_S, most=most)

    def download(self, name: str, target: Path) -> Digest:
        self._move("fetch", name, lambda s3, at: s3.download_file(**at, Filename=str(target)))
        with target.open("rb") as file:  # parts arrive in any order
            return _copy(file, None)

    def write(self, name: str, content: bytes) -> None:
        self._ask("write", "PUT", name, content)

    def create(self, name: str, content: bytes) -> None:
        self._ask("write", "PUT", name, content, headers={"If-None-Match": "*"})

    def upload(self, name: str, source: Readable) -> Digest:
        from boto3.s3.transfer import TransferConfig  # noqa: PLC0415

        config = TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=PART_BYTES,
            max_concurrency=PARTS_AT_ONCE,
        )

        def send(s3: Any, at: dict[str, str]) -> Digest:
            source.seek(0)
            hashed = _Hashed(source)
            s3.upload_fileobj(hashed, **at, Config=config)
            return hashed.digest()

        return self._move("store", name, send)

    def delete(self, *names: str) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self._ask("delete", "DELETE", name)

    def _below(self, prefix: str) -> str:
        return self._prefix + (f"{prefix}/" if prefix else "")

    def _pages(self, start: str, **more: str) -> Iterator[ET.Element]:
        """Yield the pages of a list of the keys with a prefix."""
        from trainyard.store.s3_requests import xml  # noqa: PLC0415

        query = {"list-type": "2", "encoding-type": "url", "prefix": start, **more}
        while True:
            page = xml(self._ask("list", "GET", query=query))
            further = [] if page is None else _texts(page, "{*}NextContinuationToken")
            if (
                page is None
                or not page.tag.endswith("ListBucketResult")
                or further == [query.get("continuation-token")]  # it would never end
            ):
                said = "the answer is not a list of objects: look at what listens there"
                raise self._fault("list", "", 200, "", said)
            yield page
            if not further:
                return
            query["continuation-token"] = further[0]

    def _ask(
        self,
        verb: str,
        method: str,
        name: str | None = None,
        content: bytes = b"",
        *,
        timeout: float | None = None,
        most: int = MOST_BYTES,
        **more: Any,
    ) -> bytes:
        """Return the body of the answer to a request for an object, None for the bucket."""
        from trainyard.store.s3_requests import UnansweredError  # noqa: PLC0415

        key = "" if name is None else self._prefix + name
        timeout = timeout or self.answer_s or READ_TIMEOUT_S

        def asked() -> bytes:
            try:
                reply = self._requests.send(
                    method, key, content, timeout=timeout, most=most, **more
                )
            except UnansweredError as error:
                raise self._fault(verb, name or "", 0, "", str(error)) from None
            if not reply.good:
                raise self._fault(verb, name or "", reply.status, *reply.refusal)
            return reply.content

        return self._tried(verb, name or "", asked)

    def _set_up(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return what botocore makes with the variables and files of the environment."""
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415

        try:
            return make(*arguments)
        except (BotoCoreError, ValueError) as error:
            raise self.error(
                f"cannot use {self.where} ({' '.join(str(error).split())}): correct the "
                "environment's AWS_ variables, ~/.aws/config or ~/.aws/credentials"
            ) from None

    def _move(self, verb: str, name: str, action: Callable[[Any, dict[str, str]], T]) -> T:
        """Return the result of an action with boto3's client and the object's address."""
        from boto3.exceptions import Boto3Error  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        s3 = self._set_up(
            _client, self._requests.endpoint, self._region, self._keys, self._elsewhere
        )
        at = {"Bucket": self._requests.bucket, "Key": self._prefix + name}

        def moved() -> T:
            try:
                return action(s3, at)
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                code = error.response["Error"]["Code"]
                raise self._fault(verb, name, status, code, str(error)) from error
            except (BotoCoreError, Boto3Error) as error:
                raise self._fault(verb, name, 0, "", str(error)) from error

        return self._tried(verb, name, moved)

    def _tried(self, verb: str, name: str, action: Callable[[], T]) -> T:
        if not self.waits:
            return action()
        patience = patience_s()
        try:
            return retry(action, patience)
        except AwayError as error:
            raise StorageError(
                f"cannot {verb} {self._address(name)}: the store did not do it within "
                f"{patience:g} s ({PATIENCE_VARIABLE}), last: {error}; earlier files are "
                "unchanged: start the store, then submit the run again"
            ) from error

    def _fault(self, verb: str, name: str, status: int, code: str, text: str) -> Exception:
        """Return the error for a request that failed; AwayError where another try may help.

        The name is an object's, "" for the bucket. The status is 0 where nothing answered, the code
        is the store's word for the reason, and the text its sentence, or why it did not answer.
        """
        from trainyard.store.s3_requests import PASSING_CODE  # noqa: PLC0415

        if code in MISSING:
            return FileNotFoundError(self._address(name))
        if code in EXISTING:
            return FileExistsError(self._address(name))
        said = text if code in text else f"{code} {text}".strip()
        if not status:
            return AwayError(f"{said} at {self._requests.endpoint}")
        if status in PASSING_STATUS or code == PASSING_CODE:
            return AwayError(said or f"status {status}")
        kind = RefusedError if status // 100 in (3, 4) else StorageError
        return kind(
            f"cannot {verb} {self._address(name)}: {said or f'status {status}'}; {self.advice}"
        )

    def _address(self, name: str) -> str:
        return f"{self.where}/{name}".rstrip("/")


def regular_files(top: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yields name and status of the files below a folder; skips files removed meanwhile."""
    for folder, _, names in os.walk(top):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    yield path.relative_to(top).as_posix(), status


class FolderStore(Store):
    """A folder of this machine, which need not exist yet.

    It never retries: a disk that failed does not recover in a moment.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self.where = self._path.as_uri()

    def listed(self, prefix: str = "") -> dict[str, Listed]:
        return {
            name: Listed(status.st_size, str(status.st_mtime_ns))
            for name, status in regular_files(self._path / prefix)
        }

    def folders(self, prefix: str = "") -> list[str]:
        folder = self._path / prefix
        try:
            return sorted(path.name for path in folder.iterdir() if path.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._fault("list", folder, error) from None

    def _read(self, name: str, most: int) -> bytes:
        with self._opened(name) as file:
            return file.read(most)

    def part(self, name: str, first: int, size: int) -> bytes:
        with self._opened(name) as file:
            file.seek(first)
            return file.read(size)

    def download(self, name: str, target: Path) -> Digest:
        with self._opened(name) as source, target.open("wb") as copy:
            return _copy(source, copy)

    def write(self, name: str, content: bytes) -> None:
        self._replace("write", name, io.BytesIO(content))

    def create(self, name: str, content: bytes) -> None:
        path = self._path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            raise
        except OSError as error:
            raise self._fault("write", path, error) from None

    def upload(self, name: str, source: Readable) -> Digest:
        return self._replace("store", name, source)

    def is_ours(self, name: str) -> bool:
        path = self._path / name
        found = (path.stat(), path.parent.stat())
        return all(each.st_uid == os.getuid() and not each.st_mode & 0o022 for each in found)

    def _replace(self, verb: str, name: str, source: Readable) -> Digest:
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
            raise self._fault(verb, path, error) from None
        finally:
            with suppress(OSError):  # it has become the file
                part.unlink()
        return digest

    def delete(self, *names: str) -> None:
        for name in names:
            path = self._path / name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise self._fault("delete", path, error) from None
            for parent in path.relative_to(self._path).parents[:-1]:
                with suppress(OSError):  # it has something else
                    (self._path / parent).rmdir()

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        path = self._path / name
        try:
            with open(path, "rb", opener=_at_once) as file:
                yield file
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._fault("read", path, error) from None

    def _fault(self, verb: str, path: Path, error: OSError) -> Exception:
        """Return the error for a failed action: its own, unless a file could not be written."""
        if verb not in {"write", "store"}:
            return error
        return StorageError(
            f"cannot {verb} {path}: {error}; earlier files are unchanged: make room there, or give "
            "the folder to the user that Ray runs as, then submit the run again"
        )


def _at_once(path: str, flags: int) -> int:
    """Open a file, also a FIFO that nobody writes."""
    return os.open(path, flags | os.O_NONBLOCK)


class _Hashed:
    """A source hashed while boto3 reads it: once and in order, because it has no seek."""

    def __init__(self, source: Readable) -> None:
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


def _copy(source: Readable, target: IO[bytes] | None) -> Digest:
    hashed = _Hashed(source)
    while block := hashed.read(BLOCK_BYTES):
        if target is not None:
            target.write(block)
    return hashed.digest()


def _unknown(kind: str) -> ValueError:
    return ValueError(
        f"a store of kind {kind!r} is not known: give the stack one at s3:// or file://"
    )


def _texts(page: ET.Element, path: str) -> list[str]:
    return [each.text or "" for each in page.findall(path)]


@functools.cache
def _environments_keys() -> Any:
    """Return the keys of the environment: its variables, a file, a role; None without any."""
    import botocore.session  # noqa: PLC0415

    return botocore.session.Session().get_credentials()


@functools.cache
def _client(endpoint: str, region: str, keys: Keys | None, elsewhere: bool) -> Any:
    """Return the process's client of a store: making it reads megabytes, and threads share it.

    Without keys it has those of the environment. With keys nothing of the environment counts, whose
    variables and files may be another project's. For `elsewhere` see BucketStore.
    """
    import boto3  # noqa: PLC0415
    import botocore.session  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    access, secret = keys or (None, None)
    known = botocore.session.Session.SESSION_VARIABLES
    own = {name: (None, None, default, kind) for name, (_, _, default, kind) in known.items()}
    own |= dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    own["s3"] = (None, None, None, None)
    session = botocore.session.Session(own if keys else None)
    checksums = ("request_checksum_calculation", "response_checksum_validation")
    given: dict[str, Any] = {"proxies": {}}
    if elsewhere:
        given = dict.fromkeys(checksums, "when_required")
    return boto3.session.Session(botocore_session=session).client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        config=Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 2},
            max_pool_connections=PARTS_AT_ONCE + 2,
            # To sign a large body costs a pass over it.
            s3={"addressing_style": "path", "payload_signing_enabled": False},
            **given,
        ),
    )
