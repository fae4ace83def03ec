"""Another machine, reached by SSH: run a command there, copy a file to it, reach a port of it.

Each call makes its own connection, so that nothing stays open when a provider's process ends; only
that to a socket lasts as long as this process.
Modules that import asyncssh are imported late: a stack of this machine alone does not need it.
"""

import asyncio
import contextlib
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from trainyard.access import key_file, parallel
from trainyard.access.ssh import Connection, NoKeyError, SshError, UnreachableError

CONNECT_SECONDS = 15.0
# Logins of this process at one machine at a time. An sshd hangs up on some that come while
# ten have not logged in yet (MaxStartups 10:30:100), and other users log in there too.
LOGINS_AT_ONCE = 8
LAST_LINES = 20
MOST_CHARACTERS = 16 * 1024 * 1024  # of a command's output
PIECE = 64 * 1024
KEY_SETTING = "sshKeyFile"
KEY_ADVICE = "name the file of a private key"

T = TypeVar("T")

_logins: dict[tuple[str, int], threading.BoundedSemaphore] = {}
_logins_lock = threading.Lock()
# Each has its connection, and what keeps that and the folder of its socket until this process ends.
_sockets: dict[tuple[Connection, str], tuple[Any, str, Any]] = {}
_sockets_lock = threading.Lock()


class CommandError(SshError):
    """A command failed there; the message ends with its last lines."""


def read_key(path: Path) -> str:
    """Return the text of a private key's file; "" for one with a passphrase, which the agent has.

    Raises:
        NoKeyError: the file is missing, is not a key, or can be read by others.
    """
    from trainyard.access import ssh_client  # noqa: PLC0415

    text = key_file.read(path, KEY_ADVICE)
    if ssh_client.parse_key(text, path, KEY_ADVICE) is not None:
        return text
    if not os.environ.get(ssh_client.AGENT):
        raise NoKeyError(
            f"key file {path} has a passphrase and no SSH agent runs: "
            f'eval "$(ssh-agent)"; ssh-add {path}'
        )
    return ""


def agent_holds(public_key: str) -> bool:
    """Return whether the user's SSH agent holds a key, a line as in authorized_keys."""
    from trainyard.access import ssh_client  # noqa: PLC0415

    return _wait(ssh_client.agent_holds(public_key))


def run(
    connection: Connection,
    command: str,
    *,
    stdin: str = "",
    seconds: float,
    most: int = MOST_CHARACTERS,
) -> str:
    """Run a command in the shell of the machine's user, and return what it printed.

    Args:
        connection: the machine.
        command: for the shell; never holds a secret, which others there could see.
        stdin: what it reads; may be a secret.
        seconds: that it may take.
        most: characters that it may print.

    Raises:
        SshError: the machine cannot be reached, the connection broke, the time is over, or it
            prints too much.
        CommandError: the command ended with another status than 0.
    """
    import asyncssh  # noqa: PLC0415

    broken = UnreachableError(
        f"the connection to {connection.name} broke before the command there ended: look at the "
        "network and the machine, and run again"
    )

    async def read(stream: Any) -> str:
        parts: list[str] = []
        left = most
        while part := await stream.read(PIECE):
            left -= len(part)
            if left < 0:
                raise SshError(
                    f"a command on {connection.name} prints more than {most:,} characters: look "
                    "at what it reads there"
                )
            parts.append(part)
        return "".join(parts)

    async def call() -> str:
        async with _connected(connection) as client:
            # Its output may be cut anywhere, or not be text at all.
            process = await client.create_process(command, input=stdin, errors="replace")
            try:
                printed, complained = await asyncio.gather(
                    *(read(stream) for stream in (process.stdout, process.stderr))
                )
                done = await process.wait(check=False)
            except asyncssh.Error:
                raise broken from None
        if done.exit_status is None:
            raise broken
        if done.exit_status != 0:
            lines = f"{printed}{complained}".rstrip().splitlines()[-LAST_LINES:]
            end = f"status {done.exit_status}"
            if done.exit_signal is not None:
                end = f"signal {done.exit_signal[0]}"
            text = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
            raise CommandError(
                f"a command on {connection.name} ended with {end}. Its last lines:\n{text}"
            )
        return printed

    try:
        return _wait(asyncio.wait_for(call(), seconds))
    except TimeoutError:
        raise UnreachableError(f"{connection.name} did not finish within {seconds:g} s") from None


def copy(connection: Connection, source: Path, destination: str, *, mode: int) -> None:
    """Copy a file to the machine; nobody there ever sees half of it.

    Args:
        connection: the machine.
        source: file of this machine.
        destination: absolute path there; its folder exists.
        mode: permissions there.

    Raises:
        SshError: the machine cannot be reached, or the file cannot be written there.
    """
    import asyncssh  # noqa: PLC0415

    async def put(files: Any) -> None:
        draft = f"{destination}.new"
        try:
            await files.put(str(source.resolve()), draft)  # not a link to it
            await files.chmod(draft, mode)
            await files.posix_rename(draft, destination)
        except asyncssh.Error:
            with contextlib.suppress(asyncssh.Error):
                await files.remove(draft)
            raise

    async def call() -> None:
        async with _connected(connection) as client:
            try:
                async with client.start_sftp_client() as files:
                    await put(files)
            except asyncssh.Error as error:
                raise SshError(
                    f"{connection.name} does not take {destination}: {error.reason}"
                ) from None

    _wait(call())


def with_files(connection: Connection, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """Work with the machine's files, by asyncssh's SFTP client.

    Raises:
        SshError: the machine cannot be reached, or refuses a request.
    """
    import asyncssh  # noqa: PLC0415

    async def call() -> T:
        async with _connected(connection) as client:
            try:
                async with client.start_sftp_client() as files:
                    return await work(files)
            except asyncssh.Error as error:
                raise UnreachableError(f"files of {connection.name}: {error.reason}") from None

    return _wait(call())


@contextlib.contextmanager
def forwarded(connection: Connection, host: str, port: int) -> Iterator[str]:
    """Open a port of this machine that leads to a host and TCP port as the machine knows them.

    Yields:
        host:port of this machine.
    """
    loop, thread = _running_loop()

    def wait(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    exits = contextlib.AsyncExitStack()

    async def open_port() -> int:
        client = await exits.enter_async_context(_connected(connection))
        listener = await client.forward_local_port("127.0.0.1", 0, host, port)
        return int(listener.get_port())

    try:
        yield f"127.0.0.1:{wait(open_port())}"
    finally:
        wait(exits.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def socket(connection: Connection, path: str) -> str:
    """Return the path of a socket here that leads to one of the other machine, by absolute path.

    It lasts as long as this process. If its connection has ended, another one is made.

    Raises:
        SshError: the machine cannot be reached.
    """
    key = connection, path
    with _sockets_lock:
        if key not in _sockets or _sockets[key][0].is_closed():
            # Not a port: any user of this machine could use that.
            folder = tempfile.TemporaryDirectory(prefix="trainyard-")

            local = f"{folder.name}/socket"
            exits = contextlib.AsyncExitStack()

            async def open_socket() -> Any:
                client = await exits.enter_async_context(_connected(connection))
                await client.forward_local_path(local, path)
                return client

            opened = asyncio.run_coroutine_threadsafe(open_socket(), _running_loop()[0])
            _sockets[key] = opened.result(), local, (exits, folder)
        return _sockets[key][1]


def _running_loop() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="ssh-forward", daemon=True)
    thread.start()
    return loop, thread


@contextlib.asynccontextmanager
async def _connected(connection: Connection) -> AsyncIterator[Any]:
    from trainyard.access import ssh_client  # noqa: PLC0415

    # Each call has its own thread and event loop, so waiting here does not block others.
    with _turn(connection):
        async with ssh_client.login_keys(connection, KEY_SETTING) as keys:
            client = await ssh_client.connect(connection, keys, seconds=CONNECT_SECONDS)
    async with client:
        yield client


def _turn(connection: Connection) -> threading.BoundedSemaphore:
    """Return the semaphore that logins at a machine wait for."""
    place = connection.host, connection.port
    with _logins_lock:
        return _logins.setdefault(place, threading.BoundedSemaphore(LOGINS_AT_ONCE))


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, in a separate thread: the caller's may have an event loop."""
    done: Future[T] = parallel.start(asyncio.run, work)
    return done.result()
