"""A bucket of an S3 object store, as the client reads and writes it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from botocore.credentials import ReadOnlyCredentials

from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.store import AwayError, Listed
from trainyard.s3_requests import BUSY, Requests, UnansweredError, xml

READ_TIMEOUT_S = 2
PART_TIMEOUT_S = 30  # without a byte of a part; a store with concurrent writes is slow
NO_OBJECT = "NoSuchKey"
REMEDIES = {
    "NoSuchBucket": "the bucket does not exist: run `make up`, which makes it",
    "InvalidAccessKeyId": "the store does not know this access key: read the outputs again",
    "SignatureDoesNotMatch": "the secret key is wrong: read the outputs again",
    "AccessDenied": "this user may not do that there: run `make up`, which sets its policy",
    "RequestTimeTooSkewed": "this machine's clock differs from the store's by more than 15 "
    "minutes: set the clock (timedatectl set-ntp true)",
}


class BucketStore:
    """The bucket of a stack; implements `trainyard.client.store.Store`."""

    def __init__(self, outputs: StackOutputs, bucket: str, prefix: str) -> None:
        self.url = outputs.storage_url
        self._prefix = f"{prefix}/" if prefix else ""
        keys = ReadOnlyCredentials(outputs.access_key, outputs.secret_key, None)
        self._requests = Requests(outputs.object_store_endpoint, bucket, keys)

    def put(self, key: str, content: bytes) -> None:
        """Writes an object."""
        self._ask("put", "PUT", self._prefix + key, content)

    def get(self, key: str) -> bytes | None:
        """Reads an object."""
        return self._ask("get", "GET", self._prefix + key)

    def delete(self, key: str) -> None:
        """Removes an object."""
        self._ask("delete", "DELETE", self._prefix + key)

    def folders(self, prefix: str = "") -> list[str]:
        """Common prefixes below a prefix."""
        start = self._prefix + (f"{prefix}/" if prefix else "")
        found = [
            name
            for page in self._pages(start, delimiter="/")
            for name in _texts(page, "{*}CommonPrefixes/{*}Prefix")
        ]
        return sorted(unquote_plus(name).removeprefix(start).rstrip("/") for name in found)

    def listed(self, prefix: str) -> dict[str, Listed]:
        """Objects below a prefix."""
        start = f"{self._prefix}{prefix}/"
        found = {}
        for page in self._pages(start):
            for each in page.findall("{*}Contents"):
                key, size, tag = (each.findtext(f"{{*}}{x}") or "" for x in ("Key", "Size", "ETag"))
                name = unquote_plus(key).removeprefix(start)
                if name and not name.endswith("/"):  # not a folder's marker
                    found[name] = Listed(int(size) if size.isdigit() else 0, tag.strip('"'))
        return found

    def part(self, key: str, first: int, size: int) -> bytes | None:
        """Reads a range of an object."""
        headers = {"Range": f"bytes={first}-{first + size - 1}"}
        return self._ask("get", "GET", self._prefix + key, headers=headers, timeout=PART_TIMEOUT_S)

    def _pages(self, start: str, **more: str) -> Iterator[ET.Element]:
        """Yield the pages of a list of the keys with a prefix."""
        query = {"list-type": "2", "encoding-type": "url", "prefix": start, **more}
        while True:
            page = xml(self._ask("list", "GET", "", query=query) or b"")
            further = [] if page is None else _texts(page, "{*}NextContinuationToken")
            if (
                page is None
                or not page.tag.endswith("ListBucketResult")
                or further == [query.get("continuation-token")]  # it would never end
            ):
                raise ClientError(
                    f"{self._cannot('list')}: the answer is not a list of objects; look at what "
                    "listens there"
                )
            yield page
            if not further:
                return
            query["continuation-token"] = further[0]

    def _ask(
        self,
        what: str,
        method: str,
        key: str,
        content: bytes = b"",
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = READ_TIMEOUT_S,
    ) -> bytes | None:
        """Return the body of the reply; None for a missing object."""
        try:
            reply = self._requests.send(
                method, key, content, query=query, headers=headers, timeout=timeout
            )
        except UnansweredError as error:
            raise AwayError(
                f"{self._cannot(what)} ({error}): nothing answers there; is the stack up, and is "
                "its output objectStoreEndpoint right? run `make up`"
            ) from None
        if reply.good:
            return reply.content
        code, text = reply.refusal
        if code == NO_OBJECT:
            return None
        code = code or f"status {reply.status}"
        remedy = REMEDIES.get(code, f"{text or 'no reason given'}; look at the object store's log")
        kind = AwayError if reply.status in BUSY else ClientError
        raise kind(f"{self._cannot(what)} ({code}): {remedy}")

    def _cannot(self, what: str) -> str:
        return f"cannot {what} in bucket {self._requests.bucket!r} at {self._requests.endpoint}"


def _texts(page: ET.Element, path: str) -> list[str]:
    return [each.text or "" for each in page.findall(path)]
