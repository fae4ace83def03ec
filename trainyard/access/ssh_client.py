"""Logging in to another machine by SSH.

The machine's host key is always known beforehand and nothing else is trusted: neither the user's
known_hosts nor the first key that answers. The user's own settings for SSH are not read.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncssh

from trainyard.access.ssh import (
    Connection,
    HostKeyError,
    LoginRefusedError,
    NoKeyError,
    SshError,
    UnreachableError,
)

KEEPALIVE_SECONDS = 10.0
KEEPALIVES_LOST = 3  # in a row, until the connection counts as lost
# Asked for after the kind of the expected key: a host with none of that kind would just hang up.
USUAL_SIGNATURES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256")
AGENT = "SSH_AUTH_SOCK"  # the variable with the path of the SSH agent

Key = asyncssh.SSHKey | asyncssh.SSHKeyPair


def parse_key(text: str, path: Path, advice: str) -> asyncssh.SSHKey | None:
    """Return the private key in a file's text; None for one with a passphrase.

    Raises:
        NoKeyError: it is not a key.
    """
    try:
        return asyncssh.import_private_key(text)
    except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
        if "Passphrase" in str(error):  # a missing one has no type of its own
            return None
        raise NoKeyError(
            f"key file {path} is not a readable private key ({error}): {advice}"
        ) from None


def host_key(connection: Connection) -> asyncssh.SSHKey:
    """Return the host key that the machine has to show; SshError if the connection has none."""
    try:
        return asyncssh.import_public_key(connection.host_key)
    except asyncssh.KeyImportError:
        raise SshError(
            f"the host key of {connection.name} is not one: {connection.host_key[:40]!r}; write "
            f"the line of `ssh-keyscan {connection.host}` without the name"
        ) from None


async def open_agent() -> asyncssh.SSHAgentClient | None:
    """Return the user's SSH agent, to be closed after the login; None where none answers."""
    path = os.environ.get(AGENT)
    try:
        return await asyncssh.connect_agent(path) if path else None
    except OSError:  # of an agent that has ended
        return None


@asynccontextmanager
async def login_keys(connection: Connection, setting: str) -> AsyncIterator[Sequence[Key]]:
    """Yield the key of the connection, else those of the SSH agent; never another file's.

    Args:
        connection: the machine.
        setting: name of the setting for a key.

    Raises:
        NoKeyError: the key cannot be used, or is missing.
    """
    if connection.private_key:
        yield [_own_key(connection)]
        return
    agent = await open_agent()
    try:
        keys = None if agent is None else await agent.get_keys()
    except (OSError, ValueError):  # it ends, or speaks another protocol
        keys = None
    if agent is None or keys is None:
        raise NoKeyError(
            f"no key to log in to {connection.name} with: no SSH agent answers. Set {setting}, or "
            'start one: eval "$(ssh-agent)"; ssh-add'
        )
    async with agent:
        if not keys:
            raise NoKeyError(
                f"no key to log in to {connection.name} with: the SSH agent has none. ssh-add one, "
                f"or set {setting}"
            )
        yield keys


async def agent_holds(public_key: str) -> bool:
    """Return whether the user's SSH agent holds a key, a line as in authorized_keys."""
    held: Sequence[Key] = []
    with suppress(OSError, ValueError):  # it ends, or speaks another protocol; or not a key
        wanted = asyncssh.import_public_key(public_key).public_data
        if (agent := await open_agent()) is not None:
            async with agent:
                held = await agent.get_keys()
    return any(key.public_data == wanted for key in held)


async def connect(
    connection: Connection,
    keys: Sequence[Key],
    *,
    seconds: float,
    lost: Callable[[], None] = lambda: None,
) -> asyncssh.SSHClientConnection:
    """Connect and log in.

    Args:
        connection: the machine; its own key is not looked at.
        keys: keys that may let this user in.
        seconds: time that it may take.
        lost: called when the connection has ended, for any reason.

    Raises:
        HostKeyError: the machine has another host key.
        LoginRefusedError: it takes none of the keys.
        UnreachableError: it does not answer.
        SshError: its host key in the connection is invalid.
    """
    name, known = connection.name, host_key(connection)
    peer = _Peer(lost)
    try:
        return await asyncssh.connect(
            connection.host,
            connection.port,
            username=connection.user,
            known_hosts=([known], [], []),
            server_host_key_algs=[*_signatures(known), *USUAL_SIGNATURES],
            client_factory=lambda: peer,
            client_keys=keys,
            agent_path=None,
            preferred_auth="publickey",
            # The user's own settings could lead elsewhere, or forward too much.
            config=None,
            connect_timeout=seconds,
            keepalive_interval=KEEPALIVE_SECONDS,
            keepalive_count_max=KEEPALIVES_LOST,
        )
    except (asyncssh.HostKeyNotVerifiable, asyncssh.KeyExchangeFailed):
        shown = peer.shown.get_fingerprint() if peer.shown else ""
        raise HostKeyError(
            f"{name} does not show the host key {known.get_fingerprint()} but "
            f"{shown or 'one of another kind'}: another machine answers at that address, or "
            "somebody stands in between. Log in to the machine another way and compare; set its "
            "hostKey again only if it was reinstalled",
            shown,
        ) from None
    except asyncssh.PermissionDenied:
        tried = "this key" if connection.private_key else "any key of the SSH agent"
        raise LoginRefusedError(
            f"{name} does not let {tried} in: is {connection.user!r} the right user, and does its "
            "~/.ssh/authorized_keys hold the public key?"
        ) from None
    except (OSError, asyncssh.Error) as error:
        reason = _reason(error)
        raise UnreachableError(
            unreachable(connection, f"within {seconds:g} s", reason), reason
        ) from None


def unreachable(connection: Connection, tried: str, reason: str) -> str:
    """Return the message about a machine that does not answer; `tried`: how long or often."""
    return (
        f"{connection.name} cannot be reached by SSH {tried} ({reason}): is it on, is the address "
        "right, and does its firewall let this machine in?"
    )


class _Peer(asyncssh.SSHClient):
    """Notes a host key that is not the known one, and the end of the connection."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.shown: asyncssh.SSHKey | None = None
        self._lost = lost

    def validate_host_public_key(
        self,
        host: str,  # noqa: ARG002
        addr: str,  # noqa: ARG002
        port: int,  # noqa: ARG002
        key: asyncssh.SSHKey,
    ) -> bool:
        self.shown = key
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._lost()


def _own_key(connection: Connection) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_private_key(connection.private_key)
    except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
        raise NoKeyError(
            f"the private key for {connection.name} cannot be used ({error}): give a whole one "
            "without a passphrase; or leave it out and ssh-add it"
        ) from None


def _signatures(key: asyncssh.SSHKey) -> list[str]:
    """Return the signatures of a host with this key; it may have other keys too."""
    algorithm = key.get_algorithm()
    return ["rsa-sha2-512", "rsa-sha2-256"] if algorithm == "ssh-rsa" else [algorithm]


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
