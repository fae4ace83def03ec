"""Provider of command resources: commands and files on other machines, by SSH.

They work like the plugin's. They also end with Ctrl-C and on time, on both sides.
"""

import asyncio
import secrets
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from engine.assets import by_hash
from engine.command import schema
from engine.command.output import Output
from engine.errors import EngineError, UnsupportedError
from engine.providers import WORK, Diff, Live, Say
from engine.values import Properties

T = TypeVar("T")

POLL_SECONDS = 0.1  # between looks whether the user asked to stop


class CommandProvider:
    """Resources of one type; `say` shows a message about the current resource.

    Raises:
        UnsupportedError: the engine does not know the type.
    """

    def __init__(self, type_: str, say: Say) -> None:
        if type_ not in schema.TABLES:
            raise UnsupportedError(f"resources of the type {type_}")
        self._type = type_
        self._say = say
        self._canceled = threading.Event()

    def cancel(self) -> None:
        """End the running commands, and start no more."""
        self._canceled.set()

    def check(self, _olds: Properties, news: Properties) -> tuple[Properties, list[str]]:
        return schema.check(self._type, news)

    def diff(self, _id: str, olds: Properties, news: Properties) -> Diff:
        """Anything that differs is a change."""
        table = schema.TABLES[self._type]
        changed = [key for key in table if olds.get(key) != news.get(key)]
        return Diff(replaces=[key for key in changed if table[key].replaces])

    def create(self, news: Properties) -> Live:
        drawn = secrets.token_hex(4)
        if self._type == schema.COPY:
            self._copy(news)
            return Live(id=drawn, outputs=news)
        name = WORK.get().urn.rpartition("::")[2]
        return Live(id=f"{name}{drawn}", outputs=news | self._run("create", news))

    def find(self, _news: Properties) -> Live | None:
        """A command's effects cannot be found: it is run again."""
        return None

    def read(self, id_: str, olds: Properties) -> Live | None:
        """A command's effects cannot be read."""
        return Live(id=id_, outputs=olds)

    def update(self, _id: str, olds: Properties, news: Properties) -> Properties:
        """A command is run again, a file copied again if it is another."""
        if self._type == schema.REMOTE:
            return news | self._run("create", news)
        if any(by_hash(olds[key]) != by_hash(news[key]) for key in ("source", "remotePath")):
            self._copy(news)
        return news

    def delete(self, _id: str, olds: Properties) -> None:
        """Copied files stay, as with the plugin."""
        if self._type == schema.REMOTE and "delete" in olds:
            self._run("delete", olds)

    def _run(self, which: str, props: Properties) -> Properties:
        from engine.command.ssh import name_of, run_remote  # noqa: PLC0415 - imports asyncssh

        output, connection = Output(lambda line: self._say("info", line)), props["connection"]
        end = self._until_done(run_remote(connection, props[which], output, self._say))
        if end:
            raise EngineError(
                f"the command on {name_of(connection)} ended with {end}; its last lines:\n"
                f"{output.last_lines()}"
            )
        return output.properties()

    def _copy(self, news: Properties) -> None:
        from engine.command.ssh import copy  # noqa: PLC0415 - as above

        connection, path = news["connection"], news["source"]["path"]
        self._until_done(copy(connection, path, news["remotePath"], self._say))

    def _until_done(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(self._watched(work))

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result, unless the user or the time limit ends it first."""
        loop = asyncio.get_running_loop()
        seconds = WORK.get().seconds
        deadline = loop.time() + seconds if seconds else None
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=POLL_SECONDS))[0]:
            if self._canceled.is_set():
                reason = "canceled; its effects so far stay, and the next run starts it again"
            elif deadline is not None and loop.time() > deadline:
                reason = f"not done within {seconds:g} s; see why, or raise its custom_timeouts"
            else:
                continue
            task.cancel()
            await asyncio.wait({task})
            raise EngineError(reason)
        try:
            return task.result()
        except OSError as error:
            raise EngineError(f"the command cannot be run: {error}") from None
