"""The results of runs for those who see them: users have no keys of the store.

Who has the stack's own token, and teachers, see all that is stored. A user sees and deletes runs of
their own. Of what users may write there is one file: it says that a run was pulled, and an idle
stack looks for it before it ends.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from aiohttp import web

from trainyard.queue.records import Records
from trainyard.queue.users import USER, Caller
from trainyard.store.objects import (
    S3,
    AwayError,
    BucketStore,
    FolderStore,
    Keys,
    StorageError,
    Store,
)
from trainyard.tracking.run_folder import SUMMARIES

T = TypeVar("T")

READERS = 4  # requests at a time, each with at most MOST_BYTES of memory
MOST_BYTES = 64 * 2**20  # of an answer; what is longer is asked for in parts
# Besides their folders runs have files below these, by their names.
AREAS = (SUMMARIES, ".trainyard/claims", ".trainyard/sweeps")
PULLED, MARK_BYTES = "pulled.json", 2**16
ANSWER_S = 10  # without a byte of the store


class TooLargeError(StorageError):
    """A file is longer than MOST_BYTES."""


class QueuesFolder(FolderStore):
    """The stack's folder."""

    refusal = TooLargeError


class QueuesBucket(BucketStore):
    """The stack's bucket, which is asked once: the client asks again."""

    answer_s = ANSWER_S
    waits = False
    refusal = TooLargeError


class Results:
    """Answers requests for files of runs.

    Args:
        source: `url` of the store, and of the stack's own bucket `endpoint`, `region`, `access`
            and `secret`.
        records: know whose a run is.
    """

    def __init__(self, source: Mapping[str, str], records: Records) -> None:
        self._source, self._records = source, records
        self._readers = ThreadPoolExecutor(READERS)

    async def files(self, caller: Caller, query: Mapping[str, str]) -> web.Response:
        """Return size and tag of the files `below` a prefix, by their names below it."""
        found = await self._ask(self._files, caller, query.get("below", ""))
        return web.json_response(found)

    async def folders(self, caller: Caller, query: Mapping[str, str]) -> web.Response:
        """Return the names of folders directly `below` a prefix."""
        return web.json_response(await self._ask(self._folders, caller, query.get("below", "")))

    async def file(self, caller: Caller, query: Mapping[str, str]) -> web.Response:
        """Return the content of the file `name`: `size` bytes from `first` on, or all of them."""
        first, size = (_number(query.get(key, "0")) for key in ("first", "size"))
        content = await self._ask(self._read, caller, query.get("name", ""), first, size)
        return web.Response(body=content)

    async def mark(
        self, caller: Caller, query: Mapping[str, str], request: web.Request
    ) -> web.Response:
        """Note that a run was pulled."""
        name = query.get("name", "")
        content = await request.content.read(MARK_BYTES + 1)
        if name.partition("/")[2] != PULLED or len(content) > MARK_BYTES:
            raise web.HTTPForbidden(text="of a run only the note that it was pulled is written")
        await self._ask(self._write, caller, name, content)
        return web.Response()

    async def delete(self, caller: Caller, query: Mapping[str, str]) -> web.Response:
        """Delete the file `name`."""
        await self._ask(self._delete, caller, query.get("name", ""))
        return web.Response()

    async def _ask(self, act: Callable[..., T], caller: Caller, name: str, *more: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, act, caller, name, *more)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise web.HTTPNotFound(text=f"no file {name[:200]!r} of your runs") from None
        except TooLargeError:
            raise web.HTTPRequestEntityTooLarge(MOST_BYTES, MOST_BYTES + 1) from None
        except AwayError as error:
            raise web.HTTPServiceUnavailable(text=f"the store does not answer ({error})") from None
        except (StorageError, OSError) as error:
            raise web.HTTPBadGateway(text=str(error)) from None

    def _files(self, caller: Caller, below: str) -> dict[str, Any]:
        runs = self._runs(caller)
        if runs is None or _run_of(below) in runs:
            return {**self._store.listed(_checked(below))}
        if _checked(below) in AREAS:
            found = self._store.listed(below).items()
            return {name: each for name, each in found if _run_of(f"{below}/{name}") in runs}
        if below:
            return {}
        return {f"{run}/{n}": each for run in runs for n, each in self._store.listed(run).items()}

    def _folders(self, caller: Caller, below: str) -> list[str]:
        runs = self._runs(caller)
        if runs is None or _run_of(below) in runs:
            return self._store.folders(_checked(below))
        return [name for name in self._store.folders() if name in runs] if not below else []

    def _read(self, caller: Caller, name: str, first: int, size: int) -> bytes:
        self._check(caller, name)
        if size:
            return self._store.part(name, first, min(size, MOST_BYTES))
        return self._store.read(name, MOST_BYTES)

    def _delete(self, caller: Caller, name: str) -> None:
        self._check(caller, name)
        self._store.delete(name)

    def _write(self, caller: Caller, name: str, content: bytes) -> None:
        self._check(caller, name)
        self._store.write(name, content)

    def _check(self, caller: Caller, name: str) -> None:
        runs = self._runs(caller)
        if not (_checked(name) and (runs is None or _run_of(name) in runs)):
            raise FileNotFoundError

    def _runs(self, caller: Caller) -> set[str] | None:
        """The runs that a caller sees; None for all of them."""
        return self._records.runs(caller.name) if caller.role == USER else None

    @cached_property
    def _store(self) -> Store:
        url = self._source["url"]
        folder = Path(unquote(urlsplit(url).path))
        if url.startswith(S3) and "endpoint" in self._source:
            return QueuesBucket(
                unquote(url.removeprefix(S3)),
                endpoint=self._source["endpoint"],
                region=self._source["region"],
                keys=Keys(self._source["access"], self._source["secret"]),
            )
        if url.startswith(S3) or not folder.is_dir():
            raise StorageError(f"the queue does not reach the store {url}: ask who runs the stack")
        return QueuesFolder(folder)


def _run_of(name: str) -> str:
    """Return the run that a name belongs to, "" for none: no run's name begins with a dot."""
    area = next((each for each in AREAS if _checked(name).startswith(f"{each}/")), "")
    run = name.removeprefix(f"{area}/" if area else "").partition("/")[0]
    return "" if run.startswith(".") else run


def _checked(name: str) -> str:
    """Return a name.

    Raises:
        FileNotFoundError: it is none, such as one that leads out of the store.
    """
    if name and (not {"", ".", ".."}.isdisjoint(name.split("/")) or "\0" in name):
        raise FileNotFoundError
    return name


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise web.HTTPBadRequest(text=f"{text[:80]!r} is not a number of bytes")
    return int(text)
