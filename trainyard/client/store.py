"""The store of checkpoints and runs of a stack, as the client reaches it; it is asked once."""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.store_errors import AwayError, TooLargeError
from trainyard.store import objects
from trainyard.store.objects import S3, BucketStore, FolderStore, Keys, Store

MARKER = b"trainyard pre-flight"
ANSWER_S = 2  # without a byte of an answer about a small object
REMEDIES = {
    "NoSuchBucket": "the bucket does not exist: run `make up`, which makes it",
    "InvalidAccessKeyId": "the store does not know this access key: read the outputs again",
    "SignatureDoesNotMatch": "the secret key is wrong: read the outputs again",
    "AccessDenied": "this user may not do that there: run `make up`, which sets its policy",
    "RequestTimeTooSkewed": "this machine's clock differs from the store's by more than 15 "
    "minutes: set the clock (timedatectl set-ntp true)",
}


def open_store(outputs: StackOutputs) -> Store:
    """The store of a stack, whose errors are ClientErrors.

    Raises:
        ClientError: its address is of an unknown kind, or a folder of another machine.
    """
    url = outputs.storage_url
    if outputs.keeps_files_away:
        raise ClientError(
            f"the results of stack {outputs.stack!r} are files, {url} on {outputs.away}: look at "
            "them there, or give the stack an object store"
        )
    if not url and outputs.queue:
        from trainyard.client.queue_store import QueueStore  # noqa: PLC0415 - it needs urllib3

        return QueueStore(outputs)
    if not url:
        raise ClientError(
            f"cluster {outputs.stack!r} has no store here, where this looks: what its jobs write "
            "is in the store of its nodes, or in ~/ray_results there. Name one with "
            f"`train attach {outputs.dashboard_url} -s {outputs.stack} --storage URI`"
        )
    if url.startswith("file://"):
        return StackFolder(Path(unquote(urlsplit(url).path)))
    if url.startswith(S3) and not outputs.access_key:
        return environments_bucket(url)
    if url.startswith(S3):
        keys = Keys(outputs.access_key, outputs.secret_key)
        return StackBucket(
            unquote(url.removeprefix(S3)), endpoint=outputs.object_store_endpoint, keys=keys
        )
    raise ClientError(
        f"stack {outputs.stack!r} has storageUrl {url!r}; "
        "only s3:// and file:// are known: update this client"
    )


def environments_bucket(url: str) -> Store:
    """The bucket at s3://bucket[/prefix], with the endpoint and keys of the environment."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    path = unquote(url.removeprefix(S3)).strip("/")
    return ClientBucket(path, endpoint=objects.environments_endpoint(region), region=region)


def check(store: Store) -> None:
    """Writes, reads and deletes a marker; ClientError if one of the three failed."""
    key = f".trainyard/preflight-{uuid.uuid4().hex}"
    store.write(key, MARKER)
    try:
        if store.get(key) != MARKER:
            raise ClientError(
                f"{store.where} did not give back what was just written to {key}: "
                "another program changes it, or the store is broken; look at its log"
            )
    finally:
        store.delete(key)


class StackFolder(FolderStore):
    """A folder of this machine, for stacks without an object store."""

    refusal = TooLargeError

    def _fault(self, verb: str, path: Path, error: OSError) -> Exception:
        return ClientError(
            f"cannot {verb} {path} ({error.strerror}): the storage {self.where} must be a folder "
            "that you and the Ray nodes may write; see `df` and `ls -ld` of it"
        )


class ClientBucket(BucketStore):
    """A bucket that is asked once, and whose errors are ClientErrors.

    Attributes:
        remedies: for the store's codes.
        if_silent: what to do where nothing answers.
    """

    answer_s = ANSWER_S
    waits = False
    error = ClientError
    refusal = TooLargeError
    remedies: Mapping[str, str] = {}
    if_silent = "nothing answers there"

    def _fault(self, verb: str, name: str, status: int, code: str, text: str) -> Exception:
        error = super()._fault(verb, name, status, code, text)
        if isinstance(error, FileNotFoundError | FileExistsError):
            return error
        what = f"cannot {verb} in bucket {self._requests.bucket!r} at {self._requests.endpoint}"
        if not status:
            return AwayError(f"{what} ({text}): {self.if_silent}")
        code = code or f"status {status}"
        other = f"{text or 'no reason given'}; look at the object store's log"
        kind = AwayError if isinstance(error, objects.AwayError) else ClientError
        return kind(f"{what} ({code}): {self.remedies.get(code, other)}")


class StackBucket(ClientBucket):
    """The bucket of a stack."""

    remedies = REMEDIES
    if_silent = (
        "nothing answers there; `train info` says whether the stack is well: if it is, is its "
        "output objectStoreEndpoint right?"
    )
