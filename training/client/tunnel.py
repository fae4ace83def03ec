"""The way to a stack on another machine: its services at local ports, through one SSH connection.

The local ports stay open while that connection is down: it is made again, and whoever connects
meanwhile waits some seconds for it. Runs in a thread with an event loop of its own. Of OpenSSH's
files it reads the key alone: host, user and host key come from the stack's outputs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import asyncssh
from asyncssh.public_key import get_default_public_key_algs

from training.client import parallel, ssh_key
from training.client.errors import ClientError
from training.client.outputs import Ssh, StackOutputs

# Fields of the outputs that hold an address on the stack's host, each with its service's name.
SERVICES = {
    "dashboard_url": "Ray dashboard",
    "object_store_endpoint": "object store",
    "prometheus_url": "Prometheus",
    "grafana_url": "Grafana",
    "notebook_url": "notebook",
    "tracking_url": "MLflow",
    "serve_url": "Ray Serve",
}
LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_S = 10  # from the first packet to the login's end
KEEPALIVE_S = 10
KEEPALIVES_LOST = 3  # in a row, until the connection counts as lost
RETRY_MIN_S = 1.0
RETRY_MAX_S = 30.0
REACH_S = 5.0  # how long whoever connects waits for the service to be reached
CLOSE_S = 1.0  # for a goodbye to the host; then the connection is dropped
CHUNK_BYTES = 2**16
RESET = struct.pack("ii", 1, 0)  # linger on, for no time: closing sends a reset


class HostKeyError(ClientError):
    """The host has another key than the pinned one; trying again would be wrong."""


@dataclass(frozen=True, kw_only=True)
class Route:
    """One service: its address here, and on the stack's host."""

    service: str
    here: str
    there: str


class Tunnel:
    """The services of a stack on this machine, while the context lasts.

    Attributes:
        outputs: of the stack, with the addresses that answer here.
        routes: what is forwarded.
    """

    outputs: StackOutputs
    routes: list[Route]

    def __init__(
        self,
        ssh: Ssh,
        outputs: StackOutputs,
        report: Callable[[str], None],
        *,
        same_ports: bool = False,
    ) -> None:
        """Notes what to do; nothing is connected yet.

        Args:
            ssh: the host, its pinned key, and how to log in.
            outputs: with addresses as they are on the host; empty ones are left out.
            report: takes a sentence when the connection is lost, back, or given up; called from
                the tunnel's thread.
            same_ports: forward from the host's own port numbers, where they are free here.
        """
        self.outputs = outputs
        self.routes = []
        self._link = _Link(ssh, outputs.stack, report)
        self._report = report
        self._same_ports = same_ports
        self._noted: set[str] = set()
        self._stop: Future[Callable[[], object]] = Future()
        self._open: Future[None] = Future()
        self._ended: Future[None]

    def __enter__(self) -> Tunnel:
        """Connects and listens.

        Raises:
            ClientError: the host is not reached, has another key, or lets nobody in.
        """
        self._ended = parallel.start(asyncio.run, self._main())
        try:
            wait((self._open, self._ended), return_when=FIRST_COMPLETED)
            if self._ended.done():
                self._ended.result()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def wait(self) -> None:
        """Returns when the tunnel has given up, which it has reported."""
        wait((self._ended,))

    def _close(self) -> None:
        stop = self._stop.result()
        with suppress(RuntimeError):  # the loop has ended by itself
            stop()
        wait((self._ended,))

    async def _main(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._stop.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        servers = []
        addresses: dict[str, Any] = {}
        try:
            await self._link.connect()
            for field, service in SERVICES.items():
                if there := getattr(self.outputs, field):
                    server, here = await self._listen(field, there)
                    servers.append(server)
                    addresses[field] = here
                    # A notebook's token is in the query.
                    shown = [url.partition("?")[0] for url in (here, there)]
                    self.routes.append(Route(service=service, here=shown[0], there=shown[1]))
            self.outputs = replace(self.outputs, **addresses)
            self._open.set_result(None)
            await self._link.keep()
        finally:
            for server in servers:
                server.close()
            await self._link.close()

    async def _listen(self, field: str, there: str) -> tuple[asyncio.Server, str]:
        address = urlsplit(there)
        try:
            port = address.port or {"http": 80, "https": 443}[address.scheme]
        except (KeyError, ValueError):
            port = 0
        host = address.hostname
        if not host or not port:
            raise ClientError(f"{field} of the stack's outputs is no http address: {there!r}")

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._forward(reader, writer, host, port)

        try:
            wanted = port if self._same_ports else 0
            server = await asyncio.start_server(accept, LOOPBACK, wanted)
        except OSError:  # taken, or this user may not have it
            server = await asyncio.start_server(accept, LOOPBACK, 0)
        local = server.sockets[0].getsockname()[1]
        return server, address._replace(netloc=f"{LOOPBACK}:{local}").geturl()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        there: asyncssh.SSHWriter[bytes] | None = None
        try:
            from_there, there = await self._link.reach(host, port)
            await asyncio.gather(_copy(reader, there), _copy(from_there, writer))
            there.close()
            writer.close()
        except asyncssh.ChannelOpenError as error:
            self._note(
                f"{self._link.where} may not forward to {host}:{port}: it takes "
                "`AllowTcpForwarding yes` in its sshd_config"
                if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
                else f"nothing answers at {host}:{port} on {self._link.where} ({error}): "
                f"`make up STACK={self.outputs.stack}` starts what has ended"
            )
        except (asyncssh.Error, OSError):
            pass  # either side is gone, and the other one is told so below
        finally:
            if there is not None and not there.is_closing():
                there.channel.abort()
            if not writer.is_closing():
                # Not an orderly end: who reads must not take a part for the whole.
                connection: socket.socket = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()

    def _note(self, text: str) -> None:
        if text not in self._noted:  # clients try again and again
            self._noted.add(text)
            self._report(f"tunnel: {text}")


class _Link:
    """The SSH connection, made again when it breaks."""

    def __init__(self, ssh: Ssh, stack: str, report: Callable[[str], None]) -> None:
        self.where = ssh.where
        self._ssh = ssh
        self._stack = stack
        self._report = report
        self._connection: asyncssh.SSHClientConnection | None = None
        self._up = asyncio.Event()

    async def connect(self) -> None:
        """Connects and logs in.

        Raises:
            HostKeyError: it has another key than the pinned one.
            ClientError: it is not reached, or lets nobody in.
        """
        peer = _Peer(self._up)
        ssh = self._ssh
        try:
            pinned = asyncssh.import_public_key(ssh.host_key)
        except asyncssh.KeyImportError:
            raise ClientError(
                f"output 'ssh' of stack {self._stack!r} has no host key to pin "
                f"({ssh.host_key[:40]!r}): run `make up STACK={self._stack}`"
            ) from None
        agent = await ssh_key.agent()
        try:
            keys = await ssh_key.find(ssh, agent)
            connection = await asyncssh.connect(
                ssh.host,
                ssh.port,
                username=ssh.user,
                config=None,
                known_hosts=([pinned], [], []),
                # Of several host keys the pinned one's kind; of none, any: its print is shown.
                server_host_key_algs=_names(pinned.sig_algorithms, get_default_public_key_algs()),
                client_factory=lambda: peer,
                client_keys=keys,
                agent_path=None,
                preferred_auth="publickey",
                connect_timeout=CONNECT_TIMEOUT_S,
                keepalive_interval=KEEPALIVE_S,
                keepalive_count_max=KEEPALIVES_LOST,
            )
        except asyncssh.HostKeyNotVerifiable:
            offered = peer.offered.get_fingerprint() if peer.offered else "of an unknown kind"
            raise HostKeyError(
                f"the host key of {self.where} is {offered}, and not {pinned.get_fingerprint()}, "
                "which the stack has pinned: somebody may be in between, so nothing was sent. "
                "Compare with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the machine's "
                f"own console; if it was set up anew, `make up STACK={self._stack}` pins its key"
            ) from None
        except asyncssh.PermissionDenied:
            prints = ", ".join(ssh_key.fingerprint(key) for key in keys)
            raise ClientError(
                f"{self.where} refuses the key {prints}: put the right one in place "
                f"(of {ssh.key_file or 'the SSH agent'}), or add this one to the authorized_keys "
                f"of user {ssh.user!r} there"
            ) from None
        except (asyncssh.Error, OSError) as error:
            raise ClientError(
                f"cannot reach {self.where} within {CONNECT_TIMEOUT_S} s ({_reason(error)}): is "
                "the machine up, and does its firewall let this network in (allowedCidrs)? "
                f"`make refresh STACK={self._stack}` tells whether it is still there"
            ) from None
        finally:
            if agent is not None:
                agent.close()
        self._connection = connection
        if not connection.is_closed():
            self._up.set()

    async def keep(self) -> None:
        """Connects again whenever the connection is lost.

        Raises:
            HostKeyError: after it was reported; the host has become another one.
        """
        clock = asyncio.get_running_loop().time
        delay = RETRY_MIN_S
        while self._connection is not None:
            since = clock()
            await self._connection.wait_closed()
            if clock() - since > RETRY_MAX_S:  # not a host that closes each one at once
                delay = RETRY_MIN_S
            self._report(f"tunnel: lost the connection to {self.where}; trying again")
            while not self._up.is_set():
                await asyncio.sleep(delay)
                delay = min(2 * delay, RETRY_MAX_S)
                try:
                    await self.connect()
                except HostKeyError as error:
                    self._report(f"tunnel: given up: {error}")
                    raise
                except ClientError:
                    continue
            self._report(f"tunnel: the connection to {self.where} is back")

    async def reach(
        self, host: str, port: int
    ) -> tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]]:
        """Connects from the host to an address.

        Raises:
            asyncssh.ChannelOpenError: the host cannot, or may not.
            TimeoutError: not within REACH_S.
        """
        async with asyncio.timeout(REACH_S):
            while True:
                await self._up.wait()
                assert self._connection is not None  # noqa: S101 - for the type checker
                try:
                    return await self._connection.open_connection(host, port)
                except (asyncssh.Error, OSError):
                    if self._up.is_set():
                        raise

    async def close(self) -> None:
        """Says goodbye to the host."""
        if self._connection is not None:
            self._connection.close()
            try:
                await asyncio.wait_for(self._connection.wait_closed(), CLOSE_S)
            except TimeoutError:
                self._connection.abort()


class _Peer(asyncssh.SSHClient):
    """What asyncssh tells of a connection: the host key that is not pinned, and the end."""

    def __init__(self, up: asyncio.Event) -> None:
        self.offered: asyncssh.SSHKey | None = None
        self._up = up

    def validate_host_public_key(
        self,
        host: str,  # noqa: ARG002
        addr: str,  # noqa: ARG002
        port: int,  # noqa: ARG002
        key: asyncssh.SSHKey,
    ) -> bool:
        self.offered = key
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._up.clear()


async def _copy(
    reader: asyncio.StreamReader | asyncssh.SSHReader[bytes],
    writer: asyncio.StreamWriter | asyncssh.SSHWriter[bytes],
) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()


def _names(*algorithms: Sequence[bytes]) -> list[str]:
    return list(dict.fromkeys(name.decode() for names in algorithms for name in names))


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
