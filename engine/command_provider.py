"""Provider of command resources: commands here, commands and files on other machines by SSH.

They do what the plugin's do. Beyond it they end with Ctrl-C and in time, on both sides.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from engine import command_schema
from engine.assets import by_hash
from engine.command_output import END_SECONDS, PREVIOUS, Output, converse
from engine.errors import EngineError, UnsupportedError
from engine.providers import WORK, Diff, Live, Say
from engine.values import Properties

T = TypeVar("T")

POLL_SECONDS = 0.1  # between looks whether the user asked to stop


class CommandProvider:
    """Resources of one type.

    Args:
        type_: type token.
        say: shows a message about the resource that is worked on.

    Raises:
        UnsupportedError: the engine does not know the type.
    """

    def __init__(self, type_: str, say: Say) -> None:
        if type_ not in command_schema.PROPERTIES:
            raise UnsupportedError(f"resources of the type {type_}")
        self._type = type_
        self._say = say
        self._canceled = threading.Event()

    def cancel(self) -> None:
        """End what is running, and begin nothing more."""
        self._canceled.set()

    def check(self, _olds: Properties, news: Properties) -> tuple[Properties, list[str]]:
        """See Provider."""
        return command_schema.check(self._type, news)

    def diff(self, _id: str, olds: Properties, news: Properties) -> Diff:
        """See Provider. Anything that differs is a change."""
        differ = by_hash(olds.get("triggers")) != by_hash(news.get("triggers"))
        return Diff(replaces=["triggers"] if differ else [])

    def create(self, news: Properties) -> Live:
        """See Provider."""
        if self._type == command_schema.COPY:
            self._copy(news)
            return Live(id=secrets.token_hex(4), outputs=news)
        outputs = self._run(news.get("create"), news, {})
        name = WORK.get().urn.rpartition("::")[2]
        return Live(id=f"{name}{secrets.token_hex(4)}", outputs=news | outputs)

    def find(self, _news: Properties) -> Live | None:
        """See Provider. What a command did cannot be found: it is run again."""
        return None

    def read(self, id_: str, olds: Properties) -> Live | None:
        """See Provider. Nobody can tell what became of what a command did."""
        return Live(id=id_, outputs=olds)

    def update(self, _id: str, olds: Properties, news: Properties) -> Properties:
        """See Provider."""
        if self._type == command_schema.COPY:
            place = [olds["source"].get("hash"), olds["remotePath"]]
            if place != [news["source"].get("hash"), news["remotePath"]]:
                self._copy(news)
            return news
        return news | self._run(news.get("update", news.get("create")), news, olds)

    def delete(self, _id: str, olds: Properties) -> None:
        """See Provider. What was copied stays, as the plugin has it."""
        if self._type != command_schema.COPY:
            self._run(olds.get("delete"), olds, olds)

    def _run(self, command: str | None, props: Properties, olds: Properties) -> Properties:
        """What the command printed; what was printed before when there is none."""
        if command is None:
            return {name: olds.get(name, "") for name in PREVIOUS.values()}
        previous = {
            name: olds[key]
            for name, key in PREVIOUS.items()
            if props.get("addPreviousOutputInEnv", True) and olds.get(key)
        }
        logging = props.get("logging", command_schema.LOGGING[0])
        output = Output(lambda line: self._say("info", line), logging)
        if self._type == command_schema.REMOTE:
            from engine.command_ssh import Connection, run_remote  # noqa: PLC0415

            connection = Connection.of(props["connection"])
            where = f" on {connection.name}"
            work = run_remote(connection, command, props, previous, output, self._say)
        else:
            where = ""
            work = run_local(command, props, previous, output)
        end = self._until_done(work)
        if end:
            raise EngineError(
                f"the command{where} ended with {end}; its last lines:\n{output.last_lines()}"
            )
        return output.properties()

    def _copy(self, news: Properties) -> None:
        from engine.command_ssh import Connection, copy  # noqa: PLC0415

        connection = Connection.of(news["connection"])
        self._until_done(copy(connection, news["source"], news["remotePath"], self._say))

    def _until_done(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(self._watched(work))

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result, unless the user or the clock ends it before.

        Raises:
            EngineError: one of them did, or an error of the machine's.
        """
        loop = asyncio.get_running_loop()
        seconds = WORK.get().seconds
        deadline = loop.time() + seconds if seconds else None
        task = asyncio.ensure_future(work)
        while not (await asyncio.wait({task}, timeout=POLL_SECONDS))[0]:
            if self._canceled.is_set():
                reason = "canceled; what it had done is done, and the next run begins it anew"
            elif deadline is not None and loop.time() > deadline:
                reason = f"not done within {seconds:g} s; see to why, or raise its custom_timeouts"
            else:
                continue
            task.cancel()
            await asyncio.wait({task})
            raise EngineError(reason)
        try:
            return task.result()
        except OSError as error:
            raise EngineError(f"the command cannot be run: {error}") from None


async def run_local(
    command: str, props: Properties, previous: dict[str, str], output: Output
) -> str:
    """Run a command on this machine.

    Returns:
        How it ended badly; "" when it did not.

    Raises:
        OSError: it cannot be started.
    """
    stdin = props.get("stdin", "")
    process = await asyncio.create_subprocess_exec(
        *(props.get("interpreter") or ["/bin/sh", "-c"]),
        command,
        stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=props.get("dir"),
        env=os.environ | props.get("environment", {}) | previous,
        start_new_session=True,  # with all that it starts, it can be ended at once
    )
    try:
        await converse(process, stdin, output)
        status = await process.wait()
    except asyncio.CancelledError:
        await _end_group(process)
        raise
    return "" if status == 0 else f"status {status}" if status > 0 else _signal_name(-status)


async def _end_group(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_SECONDS)
            return


def _signal_name(number: int) -> str:
    return f"signal {signal.Signals(number).name}"
