"""The place of checkpoints and runs, seen from the client: a bucket or a folder."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.exceptions import ClientError as S3Error

from training.client.errors import ClientError
from training.client.outputs import StackOutputs

REGION = "us-east-1"
CONNECT_TIMEOUT_S = 1
READ_TIMEOUT_S = 2
MARKER = b"trainyard pre-flight"
REMEDIES = {
    "NoSuchBucket": "the bucket does not exist: run `make up`, which makes it",
    "InvalidAccessKeyId": "the store does not know this access key: read the outputs again",
    "SignatureDoesNotMatch": "the secret key is wrong: read the outputs again",
    "AccessDenied": "this user may not do that there: run `make up`, which sets its policy",
    "RequestTimeTooSkewed": "this machine's clock differs from the store's by more than 15 "
    "minutes: set the clock (timedatectl set-ntp true)",
}


class Store(Protocol):
    """Reads and writes objects by key; keys are relative to the storage address."""

    url: str

    def put(self, key: str, content: bytes) -> None:
        """Writes an object."""

    def get(self, key: str) -> bytes | None:
        """Reads an object; None when there is none."""

    def delete(self, key: str) -> None:
        """Removes an object."""

    def folders(self, prefix: str = "") -> list[str]:
        """Names directly below a prefix that have something below them."""


def open_store(outputs: StackOutputs) -> Store:
    """The store of a stack.

    Raises:
        ClientError: its address is of an unknown kind, or a folder of another machine.
    """
    address = urlsplit(outputs.storage_url)
    if address.scheme == "file" and outputs.ssh is not None:
        raise ClientError(
            f"the results of stack {outputs.stack!r} are files, {outputs.storage_url} on "
            f"{outputs.ssh.where}: look at them there, or give the stack an object store"
        )
    if address.scheme == "file":
        return FolderStore(outputs.storage_url, Path(unquote(address.path)))
    if address.scheme == "s3":
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

    def _failed(self, what: str, path: Path, error: OSError) -> ClientError:
        return ClientError(
            f"cannot {what} {path} ({error.strerror}): the storage {self.url} must be a folder "
            "that you and the Ray nodes may write; see `df` and `ls -ld` of it"
        )


class BucketStore:
    """A bucket of an S3 object store."""

    def __init__(self, outputs: StackOutputs, bucket: str, prefix: str) -> None:
        self.url = outputs.storage_url
        self._endpoint = outputs.object_store_endpoint
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = boto3.session.Session().client(
            "s3",
            endpoint_url=self._endpoint or None,
            aws_access_key_id=outputs.access_key,
            aws_secret_access_key=outputs.secret_key,
            region_name=REGION,
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"total_max_attempts": 2, "mode": "standard"},
                s3={"addressing_style": "path"},
            ),
        )

    def put(self, key: str, content: bytes) -> None:
        """Writes an object."""
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=content)
        except (S3Error, BotoCoreError) as error:
            raise self._failed("put", error) from None

    def get(self, key: str) -> bytes | None:
        """Reads an object."""
        try:
            reply = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
            return reply["Body"].read()
        except self._client.exceptions.NoSuchKey:
            return None
        except (S3Error, BotoCoreError) as error:
            raise self._failed("get", error) from None

    def delete(self, key: str) -> None:
        """Removes an object."""
        try:
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)
        except (S3Error, BotoCoreError) as error:
            raise self._failed("delete", error) from None

    def folders(self, prefix: str = "") -> list[str]:
        """Common prefixes below a prefix."""
        start = self._prefix + (f"{prefix}/" if prefix else "")
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=start, Delimiter="/"
            )
            found = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", [])]
        except (S3Error, BotoCoreError) as error:
            raise self._failed("list", error) from None
        return sorted(name.removeprefix(start).rstrip("/") for name in found)

    def _failed(self, what: str, error: S3Error | BotoCoreError) -> ClientError:
        where = f"cannot {what} in bucket {self._bucket!r} at {self._endpoint or 'AWS'}"
        if isinstance(error, S3Error):
            code = error.response.get("Error", {}).get("Code", "unknown")
            remedy = REMEDIES.get(code, f"{error}; look at the object store's log")
            return ClientError(f"{where} ({code}): {remedy}")
        return ClientError(
            f"{where} ({type(error).__name__}): nothing answers there; is the stack up, and is "
            "its output objectStoreEndpoint right? run `make up`"
        )
