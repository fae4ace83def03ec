"""Pulumi's S3 backend: the files of a folder of states, as objects of a bucket.

`s3://states/team?endpoint=http://127.0.0.1:9000&region=us-east-1&s3ForcePathStyle=true`, as the
pulumi CLI has it: the path is a prefix, the query says how to reach the store. Keys are those of
the AWS environment (AWS_ACCESS_KEY_ID, a profile, a role).

It uses boto3 itself: libraries that look like a file system keep copies on disk, and a state must
never come from a copy.
"""

from __future__ import annotations

import errno
import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qsl, urlsplit

SCHEME = "s3://"
# Parameters of the URL, grouped by their meaning for boto3.
PATH_STYLE = ("s3ForcePathStyle", "use_path_style")
PLAIN_HTTP = ("disableSSL", "disable_https")
IGNORED = ("awssdk",)  # which of the CLI's two SDKs for AWS
KNOWN = ("endpoint", "region", "profile", *PATH_STYLE, *PLAIN_HTTP, *IGNORED)
TRUE = ("true", "1", "t")
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 30, 3
MISSING = ("404", "NoSuchKey", "NotFound")
# versitygw also answers this if the last object of the same folder is deleted at that moment.
PASSING = "ExistingObjectIsDirectory"
PASSING_TRIES, PASSING_PAUSE_SECONDS = 5, 0.05
AMAZON = "amazonaws.com"
CONFLICT = ("412", "PreconditionFailed", "ConditionalRequestConflict")


class BucketUrlError(ValueError):
    """The URL of a bucket cannot be used; the message says why and what to do."""


class BucketError(OSError):
    """The store refuses, or does not answer; the message names the request."""


@dataclass(frozen=True)
class BucketPath:
    """A name in a bucket, with the methods of `pathlib.Path` that states need.

    They raise FileNotFoundError and FileExistsError like those of a path, else BucketError.
    """

    url: str  # how the bucket is reached, as PULUMI_BACKEND_URL has it
    key: PurePosixPath  # the name

    def __str__(self) -> str:
        return f"{SCHEME}{urlsplit(self.url).netloc}/{self.key}"

    def __truediv__(self, name: str) -> BucketPath:
        return BucketPath(self.url, self.key / name)

    def __lt__(self, other: BucketPath) -> bool:
        return self.key < other.key

    @property
    def parent(self) -> BucketPath:
        """The name without its last part."""
        return BucketPath(self.url, self.key.parent)

    @property
    def name(self) -> str:
        """Last part of the name."""
        return self.key.name

    @property
    def stem(self) -> str:
        """Last part without its last suffix."""
        return self.key.stem

    @property
    def suffixes(self) -> list[str]:
        """Suffixes of the last part."""
        return self.key.suffixes

    @property
    def address(self) -> str:
        """Store, bucket and name: the same for all users of one address of the store."""
        with _told(self):
            store = urlsplit(_client(self.url).meta.endpoint_url).netloc.lower()
        # Amazon has one bucket of each name, whichever region's address is used.
        store = AMAZON if store.endswith(f".{AMAZON}") else store
        return f"{store}/{urlsplit(self.url).netloc}/{self.key}"

    @property
    def endpoint(self) -> str:
        """URL of the store, "" for Amazon's."""
        return _given(self.url)[2]

    def with_suffix(self, suffix: str) -> BucketPath:
        """The name with another suffix."""
        return BucketPath(self.url, self.key.with_suffix(suffix))

    def exists(self) -> bool:
        """Return whether the object exists."""
        try:
            self._call("head_object")
        except FileNotFoundError:
            return False
        return True

    def modified_ns(self) -> int:
        """Return when the object was written, in ns since 1970; stores know whole seconds."""
        return int(self._call("head_object")["LastModified"].timestamp()) * 10**9

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        return self.read_tagged()[0]

    def read_tagged(self) -> tuple[bytes, str]:
        """Return the content of the object, and a tag of just this content."""
        answer = self._call("get_object")
        with _told(self):
            return answer["Body"].read(), str(answer["ETag"])

    def write_bytes(self, content: bytes) -> None:
        """Put an object in place of another: completely, or not at all."""
        self._put(content)

    def create(self, content: bytes) -> str:
        """Create an object; return its tag.

        Raises:
            FileExistsError: it exists. Of several creates at the same time one succeeds.
        """
        return self._put(content, IfNoneMatch="*")

    def replace(self, content: bytes, tag: str) -> str:
        """Put an object in place of the one with a tag; return its own tag.

        Raises:
            FileExistsError: another one is there by now, or none.
        """
        try:
            return self._put(content, IfMatch=tag)
        except FileNotFoundError:
            raise FileExistsError(errno.EEXIST, "it is gone", str(self)) from None

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the object."""
        if not missing_ok and not self.exists():
            raise FileNotFoundError(errno.ENOENT, "no such object", str(self))
        self._call("delete_object")

    def glob(self, pattern: str) -> Iterator[BucketPath]:
        """Yield names below this one, each once; they may be prefixes of others."""
        parts = pattern.split("/")
        start = f"{self.key}/"
        seen: set[PurePosixPath] = set()
        with _told(self):
            pages = _client(self.url).get_paginator("list_objects_v2")
            bucket = urlsplit(self.url).netloc
            for page in pages.paginate(Bucket=bucket, Prefix=start):
                for each in page.get("Contents", ()):
                    found = each["Key"].removeprefix(start).split("/")[: len(parts)]
                    key = self.key.joinpath(*found)
                    fits = len(found) == len(parts) and all(map(fnmatchcase, found, parts))
                    if fits and key not in seen:
                        seen.add(key)
                        yield BucketPath(self.url, key)

    def _put(self, content: bytes, **more: Any) -> str:
        left = PASSING_TRIES
        while True:
            left -= 1
            try:
                return str(self._call("put_object", Body=content, **more)["ETag"])
            except BucketError as error:
                if not left or PASSING not in str(error):
                    raise
                time.sleep(PASSING_PAUSE_SECONDS)

    def _call(self, name: str, **more: Any) -> Any:
        with _told(self):
            bucket = urlsplit(self.url).netloc
            return getattr(_client(self.url), name)(Bucket=bucket, Key=str(self.key), **more)


def find(url: str) -> BucketPath | None:
    """Return the place of a backend's states in a bucket, None for other backends.

    Args:
        url: of the backend.

    Raises:
        BucketUrlError: it names no bucket, or has unknown parameters.
    """
    if not url.startswith(SCHEME):
        return None
    parts = urlsplit(url)
    if not parts.netloc:
        raise BucketUrlError(f"the state backend {url!r} names no bucket: write s3://BUCKET")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(given.keys() - set(KNOWN)):
        raise BucketUrlError(
            f"the state backend {url!r} has the unknown parameters {', '.join(unknown)}; known "
            f"are {', '.join(KNOWN)}"
        )
    return BucketPath(url, PurePosixPath(parts.path.strip("/")) / ".pulumi")


def _given(url: str) -> tuple[dict[str, str], bool, str]:
    """The parameters of a URL, whether they ask for plain HTTP, and the address of the store."""
    given = dict(parse_qsl(urlsplit(url).query))
    plain = any(given.get(name) in TRUE for name in PLAIN_HTTP)
    endpoint = given.get("endpoint", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"{'http' if plain else 'https'}://{endpoint}"
    return given, plain, endpoint


@functools.cache
def _client(url: str) -> Any:
    import boto3  # noqa: PLC0415 (slow, and states in a folder need none)
    from botocore.config import Config  # noqa: PLC0415

    given, plain, endpoint = _given(url)
    path_style = any(given.get(name) in TRUE for name in PATH_STYLE)
    session = boto3.Session(profile_name=given.get("profile"), region_name=given.get("region"))
    return session.client(
        "s3",
        endpoint_url=endpoint or None,
        use_ssl=not plain,
        config=Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": "path" if path_style else "auto"},
            # Stores other than Amazon's do not know newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@contextmanager
def _told(path: BucketPath) -> Iterator[None]:
    """Raise the errors of a store as a file system would."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 (as above)

    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        code = str(answer.get("Code", ""))
        text = f"the store answers {code}: {answer.get('Message', '')}"
        if code in MISSING:
            raise FileNotFoundError(errno.ENOENT, text, str(path)) from None
        if code in CONFLICT:
            raise FileExistsError(errno.EEXIST, text, str(path)) from None
        raise BucketError(errno.EIO, text, str(path)) from None
    except (BotoCoreError, ValueError) as error:  # ValueError: a bad variable or setting
        raise BucketError(errno.EIO, " ".join(str(error).split()), str(path)) from None
