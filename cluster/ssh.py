"""Another machine, reached by SSH: run a command there, copy a file to it, reach a port of it.

The machine's host key is always known beforehand and nothing else is trusted: neither the user's
known_hosts nor the first key that answers. Each call makes a connection of its own, so that nothing
is left open when a provider's process ends.

asyncssh takes a third of a second to import, which a stack of this machine alone does without.
"""

import asyncio
import contextlib
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

CONNECT_SECONDS = 15.0
KEEPALIVE_SECONDS = 10.0
LAST_LINES = 20
PRIVATE = stat.S_IRWXG | stat.S_IRWXO  # mode bits that a private key's file must not have

T = TypeVar("T")


class SshError(Exception):
    """A machine cannot be reached or used; the message says what to do.

    Raised itself, and as the classes below but the next two, for what no later attempt mends.
    """


class UnreachableError(SshError):
    """No answer, or the connection broke: a machine that is starting may answer later."""


class LoginRefusedError(SshError):
    """The machine takes none of the keys: one that is starting may not have its users yet."""


class NoKeyError(SshError):
    """There is no key here to log in with, so nothing was asked of the machine."""


class HostKeyError(SshError):
    """Another machine than the one that is meant answers."""


class CommandError(SshError):
    """A command ended badly there; the message ends with its last lines."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How a machine is reached.

    Attributes:
        host: name or address.
        user: who to log in as.
        host_key: its public host key as in known_hosts, without the names: "ssh-ed25519 AAAA…".
        port: of its SSH server.
        private_key: text of the key to log in with; "" leaves it to the SSH agent.
    """

    host: str
    user: str
    host_key: str
    port: int = 22
    private_key: str = field(default="", repr=False)

    @classmethod
    def of(cls, props: Mapping[str, Any]) -> "Connection":
        """Return the connection that the properties of a resource hold."""
        return cls(
            host=props["host"],
            user=props["user"],
            host_key=props["hostKey"],
            port=int(props["port"]),
            private_key=props.get("privateKey", ""),
        )

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != 22 else "")


def read_key(path: Path) -> str:
    """Return the text of a private key's file; "" for one with a passphrase, which the agent has.

    Raises:
        NoKeyError: there is no such file, it is no key, or others could read it.
    """
    import asyncssh  # noqa: PLC0415

    try:
        # What a link names may change after it was looked at.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), errors="replace")
    except OSError as error:
        raise NoKeyError(
            f"SSH key {path}: {error.strerror}; name the file of a private key"
        ) from None
    with file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise NoKeyError(f"SSH key {path} is no file; name the file of a private key")
        if mode & PRIVATE:
            raise NoKeyError(
                f"SSH key {path} has mode {stat.S_IMODE(mode):04o}, and others could read it: "
                f"chmod 600 {path}; if they may have, make a new key"
            )
        text = file.read()
    try:
        asyncssh.import_private_key(text)
    except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
        # A missing passphrase has no type of its own.
        if "Passphrase" not in str(error):
            raise NoKeyError(f"SSH key {path} is no private key that can be read") from None
        if not os.environ.get("SSH_AUTH_SOCK"):
            raise NoKeyError(
                f"SSH key {path} has a passphrase and no SSH agent runs: "
                f'eval "$(ssh-agent)"; ssh-add {path}'
            ) from None
        return ""
    return text


def agent_holds(public_key: str) -> bool:
    """Return whether the user's SSH agent holds a key; without an agent it does not.

    Args:
        public_key: one line, as in authorized_keys.
    """
    import asyncssh  # noqa: PLC0415

    try:
        wanted = asyncssh.import_public_key(public_key).public_data
    except asyncssh.KeyImportError:
        return False

    async def look() -> bool:
        try:
            async with asyncssh.connect_agent() as agent:
                return any(key.public_data == wanted for key in await agent.get_keys())
        except (OSError, ValueError):
            return False

    return _wait(look())


def run(connection: Connection, command: str, *, stdin: str = "", seconds: float) -> str:
    """Run a command in the shell of the machine's user, and return what it printed.

    Args:
        connection: the machine.
        command: for the shell; never holds a secret, which others there could see.
        stdin: what it reads; may be a secret.
        seconds: it may take.

    Raises:
        SshError: the machine cannot be reached, the connection broke, or the time is over.
        CommandError: the command ended with another status than 0.
    """

    async def call() -> str:
        async with _connected(connection) as client:
            # What it prints may be cut anywhere, or no text at all.
            done = await client.run(command, input=stdin, check=False, errors="replace")
        if done.exit_status is None:
            raise UnreachableError(
                f"the connection to {connection.name} broke before the command there ended: look "
                "at the network and the machine, and run again"
            )
        if done.exit_status != 0:
            lines = f"{done.stdout}{done.stderr}".rstrip().splitlines()[-LAST_LINES:]
            end = f"status {done.exit_status}"
            if done.exit_signal is not None:
                end = f"signal {done.exit_signal[0]}"
            text = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
            raise CommandError(
                f"a command on {connection.name} ended with {end}. Its last lines:\n{text}"
            )
        return str(done.stdout)

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


@contextlib.contextmanager
def forwarded(connection: Connection, host: str, port: int) -> Iterator[str]:
    """Open a port of this machine that leads to one that the other machine reaches.

    Args:
        connection: the machine.
        host: as the machine knows it.
        port: TCP port of that host.

    Yields:
        host:port of this machine.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="ssh-forward", daemon=True)
    thread.start()

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


@contextlib.asynccontextmanager
async def _connected(connection: Connection) -> AsyncIterator[Any]:
    import asyncssh  # noqa: PLC0415

    name = connection.name
    try:
        known = [asyncssh.import_public_key(connection.host_key)]
    except asyncssh.KeyImportError:
        raise SshError(
            f"the host key of {name} is not one: {connection.host_key[:40]!r}; write the line of "
            f"`ssh-keyscan {connection.host}` without the name"
        ) from None
    try:
        async with _login_keys(connection) as keys:
            client = await asyncio.wait_for(
                asyncssh.connect(
                    connection.host,
                    connection.port,
                    username=connection.user,
                    known_hosts=(known, [], []),
                    client_keys=keys,
                    agent_path=None,
                    # The user's own settings could lead elsewhere, or forward what must not be.
                    config=None,
                    server_host_key_algs=_algorithms(known[0]),
                    keepalive_interval=KEEPALIVE_SECONDS,
                    connect_timeout=CONNECT_SECONDS,
                ),
                CONNECT_SECONDS,
            )
    except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
        raise HostKeyError(
            f"{name} does not show the host key {known[0].get_fingerprint()} ({error.reason}): "
            "another machine answers at that address, or somebody stands in between. Log in to "
            "the machine another way and compare; set its hostKey anew if it was installed anew"
        ) from None
    except asyncssh.PermissionDenied:
        tried = "this key" if connection.private_key else "any key of the SSH agent"
        raise LoginRefusedError(
            f"{name} does not let {tried} in: is {connection.user!r} the right user, and does its "
            "~/.ssh/authorized_keys hold the public key?"
        ) from None
    except (OSError, TimeoutError, asyncssh.Error) as error:
        reason = str(error) or f"no answer within {CONNECT_SECONDS:g} s"
        raise UnreachableError(
            f"{name} cannot be reached by SSH ({reason}): is it on, is the address right, and "
            "does its firewall let this machine in?"
        ) from None
    async with client:
        yield client


@contextlib.asynccontextmanager
async def _login_keys(connection: Connection) -> AsyncIterator[list[Any]]:
    """Yield the key of the connection, else those of the SSH agent; never another file's."""
    import asyncssh  # noqa: PLC0415

    if connection.private_key:
        yield [asyncssh.import_private_key(connection.private_key)]
        return
    try:
        agent = await asyncssh.connect_agent()
        keys = await agent.get_keys()
    except (OSError, ValueError):
        raise NoKeyError(
            f"no key to log in to {connection.name} with: no SSH agent answers. Set sshKeyFile, or "
            'start one: eval "$(ssh-agent)"; ssh-add'
        ) from None
    async with agent:
        if not keys:
            raise NoKeyError(
                f"no key to log in to {connection.name} with: the SSH agent has none. ssh-add one, "
                "or set sshKeyFile"
            )
        yield list(keys)


def _algorithms(key: Any) -> list[str]:
    """Return the signatures that a host key of this kind makes; the server may have other keys."""
    algorithm = key.get_algorithm()
    return ["rsa-sha2-512", "rsa-sha2-256"] if algorithm == "ssh-rsa" else [algorithm]


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, in a thread of its own: the caller's may have an event loop."""
    result: list[Callable[[], T]] = []

    def target() -> None:
        try:
            value = asyncio.run(work)
            result.append(lambda: value)
        except BaseException as error:  # raised again by the caller
            kept = error
            result.append(lambda: _raise(kept))

    thread = threading.Thread(target=target, name="ssh", daemon=True)
    thread.start()
    thread.join()
    return result[0]()


def _raise(error: BaseException) -> Any:
    raise error
