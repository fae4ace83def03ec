"""Commands and files on other machines by SSH; hosts are told by their key, always."""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import asyncssh

from engine.command_output import END_SECONDS, PREVIOUS, Output, converse
from engine.command_schema import host_key_fault
from engine.errors import EngineError
from engine.providers import Say
from engine.values import Properties

# As the plugin waits between dials.
FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0
BACKOFF = 1.5
# OpenSSH sends no signal to a command of root's. All commands of a connection are children of the
# one process that serves it.
END_ALL = "for i in $(ps -o pid= --ppid $PPID); do [ $i = $$ ] || kill -TERM -$i; done"
# Asked for after the kind of the expected key: a host with none of that kind would just hang up.
USUAL_SIGNATURES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256")
KEEPALIVE_SECONDS = 15.0  # three without an answer, and the connection is given up


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How a host is reached: the properties of a `connection`, and their meaning in the plugin.

    Attributes:
        dial_error_limit: attempts that may fail; -1 for any number.
        per_dial_timeout: seconds of each attempt; 0 for no limit.
    """

    host: str
    user: str
    port: int
    host_key: str
    private_key: str | None = field(repr=False)
    passphrase: str | None = field(repr=False)
    password: str | None = field(repr=False)
    agent_path: str | None
    dial_error_limit: int
    per_dial_timeout: int

    @classmethod
    def of(cls, props: Properties) -> Connection:
        """The connection that properties describe.

        Raises:
            EngineError: the host's key is not among them.
        """
        if fault := host_key_fault(props):
            raise EngineError(fault)
        return cls(
            host=props["host"],
            user=props.get("user", "root"),
            port=int(props.get("port", 22)),
            host_key=props["hostKey"],
            private_key=props.get("privateKey"),
            passphrase=props.get("privateKeyPassword"),
            password=props.get("password"),
            agent_path=props.get("agentSocketPath"),
            dial_error_limit=int(props.get("dialErrorLimit", 10)),
            per_dial_timeout=int(props.get("perDialTimeout", 15)),
        )

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != 22 else "")


async def run_remote(
    connection: Connection,
    command: str,
    props: Properties,
    previous: dict[str, str],
    output: Output,
    say: Say,
) -> str:
    """Run a command in the shell of the host's user.

    Returns:
        How it ended badly; "" when it did not.

    Raises:
        EngineError: the host cannot be reached or used.
    """
    given = props.get("environment", {})
    async with _connected(connection, say) as client:
        wanted = given | {key: text for key, text in previous.items() if key in command}
        if refused := await _refused(client, wanted):
            text = (
                f"the SSH server of {connection.name} does not accept the variable {refused[0]}: "
                "add it to AcceptEnv of its sshd_config, or hand the value over by stdin"
            )
            if refused[0] not in PREVIOUS:
                raise EngineError(text)
            say("warning", text)
        process = await client.create_process(command, env=given | previous, encoding=None)
        try:
            await converse(process, props.get("stdin", ""), output)
            await process.wait_closed()
        except asyncio.CancelledError:
            await _end(client, process)
            raise
    if process.exit_signal is not None:
        return f"signal SIG{process.exit_signal[0]}"
    if process.exit_status is None:
        return "a lost connection; whether it goes on there is not known"
    return f"status {process.exit_status}" if process.exit_status else ""


async def copy(connection: Connection, source: Properties, destination: str, say: Say) -> None:
    """Copy an asset or archive to the host, over what is there.

    A folder lands in the destination under its name, or itself when its path ends with a slash.

    Raises:
        EngineError: the host cannot be reached, or does not take it.
    """
    path = source.get("path", "")
    async with _connected(connection, say) as client, client.start_sftp_client() as files:
        try:
            if path and Path(path).is_dir():
                inside = "" if path.endswith("/") else Path(path).name
                await _copy_folder(files, Path(path), posixpath.join(destination, inside))
                return
            if await files.isdir(destination):
                if not path:
                    raise EngineError(f"{destination} is a folder there: name a file for the text")
                destination = posixpath.join(destination, Path(path).name)
            else:
                await files.makedirs(posixpath.dirname(destination) or ".", exist_ok=True)
            if path:
                await files.put(path, destination)
                return
            async with files.open(destination, "wb") as file:
                await file.write(source.get("text", "").encode())
        except asyncssh.SFTPError as error:
            raise EngineError(
                f"{connection.name} does not take {destination}: {error.reason}; may its user "
                "write there, and is there room?"
            ) from None


async def _copy_folder(files: asyncssh.SFTPClient, folder: Path, destination: str) -> None:
    await files.makedirs(destination, exist_ok=True)
    for path in sorted(folder.iterdir()):
        there = posixpath.join(destination, path.name)
        if path.is_dir() and not path.is_symlink():
            await _copy_folder(files, path, there)
        else:
            await files.put(str(path), there)


async def _refused(client: asyncssh.SSHClientConnection, wanted: dict[str, str]) -> list[str]:
    """Variables that the server does not hand on; it answers nothing when it is sent them."""
    if not wanted:
        return []
    done = await client.run("env -0", env=wanted, encoding=None)
    there = set(cast("bytes", done.stdout).split(b"\0"))
    return [key for key, value in wanted.items() if f"{key}={value}".encode() not in there]


async def _end(
    client: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[bytes]
) -> None:
    """End a command there, which a server leaves running when the connection ends."""
    with suppress(OSError, TimeoutError, asyncssh.Error):
        process.terminate()
        await asyncio.wait_for(client.run(END_ALL), END_SECONDS)
        await asyncio.wait_for(process.wait_closed(), END_SECONDS)


@asynccontextmanager
async def _connected(
    connection: Connection, say: Say
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    client = await _dial(connection, say)
    try:
        yield client
        client.close()
        await client.wait_closed()
    except asyncssh.Error as error:
        raise EngineError(
            f"the connection to {connection.name} broke ({error}); whether what was begun goes on "
            "there is not known: look, then run up again"
        ) from None
    finally:
        client.abort()


async def _dial(connection: Connection, say: Say) -> asyncssh.SSHClientConnection:
    """Connect, as often as the connection's limit allows.

    Raises:
        EngineError: no attempt succeeded, or one met what does not get better.
    """
    name, limit = connection.name, connection.dial_error_limit
    known = _host_key(connection)
    keys = await _keys(connection)
    delay, attempt = FIRST_DELAY_SECONDS, 0
    while True:
        attempt += 1
        try:
            return await asyncio.wait_for(
                asyncssh.connect(
                    connection.host,
                    connection.port,
                    username=connection.user,
                    known_hosts=([known], [], []),
                    server_host_key_algs=[*_signatures(known), *USUAL_SIGNATURES],
                    client_keys=keys or None,
                    agent_path=None,
                    password=connection.password,
                    config=None,  # the user's own settings could lead elsewhere
                    keepalive_interval=KEEPALIVE_SECONDS,
                ),
                connection.per_dial_timeout or None,
            )
        except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed) as error:
            raise EngineError(
                f"{name} does not show the host key {known.get_fingerprint()} ({error.reason}): "
                "another machine answers there, or somebody stands in between. Compare the key "
                "by another way; set hostKey anew only if the host was installed anew"
            ) from None
        except asyncssh.PermissionDenied:
            raise EngineError(
                f"{name} lets nobody in with what the connection gives: is the user right, and "
                "does its ~/.ssh/authorized_keys hold the public key?"
            ) from None
        except (OSError, TimeoutError, asyncssh.Error) as error:
            reason = str(error) or f"no answer within {connection.per_dial_timeout} s"
        if -1 < limit < attempt:
            raise EngineError(
                f"{name} cannot be reached by SSH after {attempt} attempts ({reason}): is it on, "
                "is the address right, and does its firewall let this machine in?"
            )
        of = f" of {limit + 1}" if limit > -1 else ""
        say("info", f"{name} does not answer yet (attempt {attempt}{of}: {reason})")
        await asyncio.sleep(delay)
        delay = min(delay * BACKOFF, LONGEST_DELAY_SECONDS)


def _host_key(connection: Connection) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_public_key(connection.host_key)
    except asyncssh.KeyImportError as error:
        raise EngineError(f"connection.hostKey of {connection.host}: {error}") from None


def _signatures(host_key: asyncssh.SSHKey) -> list[str]:
    """What a host with this key signs with; it may have other keys too."""
    algorithm = host_key.get_algorithm()
    return ["rsa-sha2-512", "rsa-sha2-256"] if algorithm == "ssh-rsa" else [algorithm]


async def _keys(connection: Connection) -> list[Any]:
    """The key of the connection, then those of the agent.

    Raises:
        EngineError: the key cannot be used, or there is nothing to log in with.
    """
    keys: list[Any] = []
    if connection.private_key is not None:
        try:
            keys.append(asyncssh.import_private_key(connection.private_key, connection.passphrase))
        except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
            raise EngineError(
                f"the private key for {connection.name} cannot be used ({error}): give a whole "
                "one, with a passphrase also privateKeyPassword; or leave both out and ssh-add it"
            ) from None
    path = connection.agent_path or os.environ.get("SSH_AUTH_SOCK")
    if path:
        try:
            keys += await (await asyncssh.connect_agent(path)).get_keys()
        except (OSError, ValueError) as error:
            if connection.agent_path or not (keys or connection.password):
                raise EngineError(
                    f"the SSH agent at {path} does not answer ({error}); start one "
                    '(eval "$(ssh-agent)"; ssh-add), or give a privateKey'
                ) from None
    if not keys and connection.password is None:
        raise EngineError(
            f"there is nothing to log in to {connection.name} with: give privateKey or password, "
            'or add a key to an SSH agent (eval "$(ssh-agent)"; ssh-add)'
        )
    return keys
