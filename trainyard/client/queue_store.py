"""A user's own runs through the queue, by its token: users have no keys of the store."""

# ruff: noqa: D102 - Store documents the methods

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlencode

from trainyard.client import fields
from trainyard.client.dashboard import (
    Dashboard,
    DashboardError,
    RefusedError,
    UnreachableError,
)
from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.store_errors import AwayError, TooLargeError
from trainyard.store.objects import PART_BYTES, Digest, Listed, Readable, Store

PATH = "/api/results"
ANSWER_S = 30
MOST_MIB = 256  # of a list
TOO_LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)


class QueueStore(Store):
    """The runs that a token shows. They can be deleted; of writing, a note that one was pulled."""

    refusal = TooLargeError

    def __init__(self, outputs: StackOutputs) -> None:
        """Asks nothing yet."""
        self._queue = Dashboard(outputs)
        self.where = f"{self._queue.url}{PATH}"

    def listed(self, prefix: str = "") -> dict[str, Listed]:
        with self._errors(prefix):
            found = self._queue.get(f"{PATH}/files", ANSWER_S, MOST_MIB, below=prefix)
            return {name: Listed(int(size), str(tag)) for name, (size, tag) in found.items()}

    def folders(self, prefix: str = "") -> list[str]:
        with self._errors(prefix):
            found = self._queue.get(f"{PATH}/folders", ANSWER_S, MOST_MIB, below=prefix)
            return [fields.typed({"name": name}, "name", str) for name in found]

    def part(self, name: str, first: int, size: int) -> bytes:
        return self._content(name, size, first=first, size=size)

    def _read(self, name: str, most: int) -> bytes:
        try:
            return self._content(name, most)
        except TooLargeError:  # for one answer
            folder, _, file = name.rpartition("/")
            size = min(most, self.listed(folder)[file].size)
            parts = range(0, size, PART_BYTES)
            return b"".join(self.part(name, at, min(PART_BYTES, size - at)) for at in parts)

    def _content(self, name: str, most: int, **query: int) -> bytes:
        content = bytearray()
        with self._errors(name):
            for piece in self._queue.stream(f"{PATH}/file", ANSWER_S, name=name, **query):
                content += piece
                if len(content) >= most:
                    break
        return bytes(content[:most])

    def write(self, name: str, content: bytes) -> None:
        with self._errors(name):
            self._queue.put(f"{PATH}/file?{urlencode({'name': name})}", content)

    def create(self, name: str, content: bytes) -> None:
        self._refuse(name, content)

    def upload(self, name: str, source: Readable) -> Digest:
        self._refuse(name, source)

    def delete(self, *names: str) -> None:
        for name in names:
            with self._errors(name), suppress(FileNotFoundError):
                self._queue.delete(f"{PATH}/file?{urlencode({'name': name})}")

    def download(self, name: str, target: Path) -> Digest:
        self._refuse(name, target)

    def _refuse(self, *_: object) -> NoReturn:
        raise ClientError(
            "a user's token reads and deletes runs, and changes none: ask who runs the stack"
        )

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Turn errors of the queue into those of a store."""
        what = f"cannot ask the queue at {self._queue.url} for {name or 'your runs'}"
        try:
            yield
        except RefusedError as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                raise FileNotFoundError(name) from None
            kind = AwayError if refused.status in AWAY else ClientError
            kind = TooLargeError if refused.status == TOO_LARGE else kind
            raise kind(f"{what}: {refused.text[:500] or refused}") from None
        except UnreachableError as error:
            raise AwayError(f"{what} ({error}): is its port forwarded to this machine?") from None
        except (DashboardError, *fields.FAULTS) as error:
            raise ClientError(f"{what}: it answers no list of files ({error})") from None
