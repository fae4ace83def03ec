"""The store for a point's result: small files, written without the clients of whole runs.

Those take a second of processor time to import and make, which a sweep would pay for each point.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from trainyard import objects

if TYPE_CHECKING:
    from trainyard.s3_requests import Requests

TIMEOUT_S = 30  # without a byte of the answer


class Store(Protocol):
    """Stores results."""

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, which appears whole or not at all.

        Raises:
            StorageError: the store refuses, or is unavailable for too long.
        """


def open_url(url: str, environment: Mapping[str, str] = os.environ) -> Store:
    """Return the store at s3://bucket[/prefix] or file:///path.

    Args:
        url: of the storage.
        environment: of the node: it names a stack's own store, with a file of its keys.
    """
    address = urlsplit(url)
    endpoint = environment.get("AWS_ENDPOINT_URL", "")
    file = environment.get("AWS_SHARED_CREDENTIALS_FILE", "")
    if address.scheme != "s3" or not endpoint or not file:
        return objects.open_url(url)
    # Not at the top: a folder does not need it.
    from botocore.credentials import SharedCredentialProvider  # noqa: PLC0415

    from trainyard.s3_requests import REGION, Requests  # noqa: PLC0415

    keys = SharedCredentialProvider(file).load()
    if keys is None:
        return objects.open_url(url)
    region = environment.get("AWS_REGION", REGION)
    return _Bucket(Requests(endpoint, address.netloc, keys, region), address.path.strip("/"))


class _Bucket:
    def __init__(self, requests: Requests, prefix: str) -> None:
        self._requests = requests
        self._prefix = f"{prefix}/" if prefix else ""

    def write(self, name: str, content: bytes) -> None:
        from trainyard.s3_requests import UnansweredError  # noqa: PLC0415

        what = f"s3://{self._requests.bucket}/{self._prefix}{name}"

        def put() -> None:
            try:
                reply = self._requests.send("PUT", self._prefix + name, content, timeout=TIMEOUT_S)
            except UnansweredError as error:
                raise objects.AwayError(str(error)) from error
            if not reply.good:
                said = " ".join(filter(None, reply.refusal)) or f"status {reply.status}"
                raise objects.refusal("write", what, reply.status, said)

        objects.patiently("write", what, put)
