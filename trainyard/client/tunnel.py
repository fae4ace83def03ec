"""The connection to a stack on another machine: its services at local ports, by one SSH connection.

The local ports stay open while that connection is down: it is restored, and new clients wait some
seconds for it. So the ports are the tunnel's own: those of asyncssh's `forward_local_port` end with
their connection. Runs in a thread with an event loop of its own. Of OpenSSH's files it reads only
the key: host, user and host key come from the stack's outputs.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import asyncssh

from trainyard.access import parallel, ssh, ssh_client
from trainyard.client import ssh_key
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Service, Ssh, StackOutputs
from trainyard.client.stack_connection import LOOPBACK, StackConnection

CONNECT_TIMEOUT_S = 10  # from the first packet to the login's end
RETRY_MIN_S = 1.0
RETRY_MAX_S = 30.0
REACH_S = 5.0  # how long a client waits until the service is reached
CLOSE_S = 1.0  # for a goodbye to the host; then the connection is dropped
RESET = struct.pack("ii", 1, 0)  # linger on, for no time: closing sends a reset


class HostKeyError(ClientError):
    """The host has another key than the pinned one; trying again would be wrong."""


class Tunnel(StackConnection):
    """The connection to a stack on another machine."""

    def __init__(
        self, outputs: StackOutputs, report: Callable[[str], None], *, same_ports: bool = False
    ) -> None:
        super().__init__(outputs, report, same_ports=same_ports)
        assert outputs.ssh is not None  # noqa: S101 - for the type checker
        self._link = _Link(outputs.ssh, outputs.stack, report)
        self._noted: set[str] = set()
        self._stop: Future[Callable[[], object]] = Future()
        self._opened: Future[None] = Future()
        self._ended: Future[None] | None = None

    def wait(self) -> None:
        """Returns when the connection has ended; one that gave up has reported why."""
        if self._ended is not None:
            wait((self._ended,))

    def _open(self) -> None:
        self._ended = ended = parallel.start(asyncio.run, self._main())
        wait((self._opened, ended), return_when=FIRST_COMPLETED)
        if ended.done():
            ended.result()

    def _close(self) -> None:
        if self._ended is not None:
            stop = self._stop.result()
            with suppress(RuntimeError):  # the loop has ended
                stop()
            self.wait()

    async def _main(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._stop.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        servers = []
        try:
            await self._link.connect()
            for service in self.outputs.services:
                if service.url:
                    server = await self._listen(service)
                    servers.append(server)
                    self._forwarded(service, server.sockets[0].getsockname()[1], service.url)
            self._opened.set_result(None)
            await self._link.keep()
        finally:
            for server in servers:
                server.close()
            await self._link.close()

    async def _listen(self, service: Service) -> asyncio.Server:
        address = urlsplit(service.url)
        try:
            port = address.port or {"http": 80, "https": 443}[address.scheme]
        except (KeyError, ValueError):
            port = 0
        host = address.hostname
        if not host or not port:
            raise ClientError(
                f"output {service.output!r} of stack {self.outputs.stack!r} is not an http "
                f"address: {service.url!r}"
            )

        def accept() -> _Forwarder:
            return _Forwarder(self._link, host, port, self._note)

        loop = asyncio.get_running_loop()
        try:
            wanted = port if self._same_ports else 0
            return await loop.create_server(accept, LOOPBACK, wanted)
        except OSError:  # taken, or this user may not have it
            return await loop.create_server(accept, LOOPBACK, 0)

    def _note(self, text: str) -> None:
        if text not in self._noted:  # clients try again and again
            self._noted.add(text)
            self._report(f"tunnel: {text}")


class _Forwarder(asyncssh.SSHForwarder):
    """One connection to a local port, which asyncssh forwards once the link is up."""

    def __init__(self, link: _Link, host: str, port: int, note: Callable[[str], None]) -> None:
        super().__init__()
        self._link = link
        self._host = host
        self._port = port
        self._note = note

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.pause_reading()
        self._opening = asyncio.ensure_future(self._open())

    def close(self) -> None:
        ended = self._peer is not None and self._peer.was_eof_received()
        if self._transport is not None and not ended:
            # Not an orderly end: the reader must not take a part for the whole.
            connection: socket.socket = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._transport.abort()
        super().close()

    async def _open(self) -> None:
        opened = False
        try:
            await self._link.reach(self._host, self._port, self)
            opened = True
            if self._transport is not None:  # not lost again meanwhile
                self.resume_reading()
        except asyncssh.ChannelOpenError as error:
            where = f"{self._host}:{self._port}"
            self._note(
                f"{self._link.where} may not forward to {where}: it needs "
                "`AllowTcpForwarding yes` in its sshd_config"
                if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
                else f"nothing answers at {where} on {self._link.where} ({error}): "
                f"`train info -s {self._link.stack}` says what has ended"
            )
        except (asyncssh.Error, OSError):
            pass  # the host is away
        finally:
            if not opened:
                self.close()


class _Link:
    """The SSH connection, restored when it breaks."""

    def __init__(self, ssh: Ssh, stack: str, report: Callable[[str], None]) -> None:
        self.where = ssh.name
        self.stack = stack
        self._ssh = ssh
        self._report = report
        self._connection: asyncssh.SSHClientConnection | None = None
        self._up = asyncio.Event()

    async def connect(self) -> None:
        """Connects and logs in.

        Raises:
            HostKeyError: the host has another key than the pinned one.
            ClientError: the host is not reached, or refuses the login.
        """
        try:
            pinned = ssh_client.host_key(self._ssh)
        except ssh.SshError:
            raise ClientError(
                f"output 'ssh' of stack {self.stack!r} has no host key to pin "
                f"({self._ssh.host_key[:40]!r}): run `make up STACK={self.stack}`"
            ) from None
        agent = await ssh_client.open_agent()
        try:
            keys = await ssh_key.find(self._ssh, agent)
            self._connection = await ssh_client.connect(
                self._ssh, keys, seconds=CONNECT_TIMEOUT_S, lost=self._up.clear
            )
        except ssh.HostKeyError as error:
            raise HostKeyError(
                f"the host key of {self.where} is {error.shown or 'of an unknown kind'}, and not "
                f"{pinned.get_fingerprint()}, which the stack has pinned: somebody may be in "
                f"between, so nothing was sent. {self._other_key(pinned)}"
            ) from None
        except ssh.LoginRefusedError:
            prints = ", ".join(ssh_key.fingerprint(key) for key in keys)
            raise ClientError(
                f"{self.where} refuses the key {prints}: put the right one in place "
                f"(of {self._ssh.key_file or 'the SSH agent'}), or add this one to the "
                f"authorized_keys of user {self._ssh.user!r} there"
            ) from None
        except ssh.UnreachableError as error:
            raise ClientError(
                f"cannot reach {self.where} within {CONNECT_TIMEOUT_S} s ({error.reason}): is "
                f"the machine up, and does its firewall let this network in{self._no_way()}"
            ) from None
        finally:
            if agent is not None:
                agent.close()
        if not self._connection.is_closed():
            self._up.set()

    def _other_key(self, pinned: asyncssh.SSHKey) -> str:
        """Advice about another host key."""
        if self._ssh.rented:
            return (
                "If the machine has ended, its address may be another's by now: "
                f"`make refresh STACK={self.stack}` tells, then `make up` rents a new one"
            )
        algorithm = pinned.get_algorithm()
        kind = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}.get(algorithm, "ecdsa")
        return (
            f"Compare with `ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub` on the machine's own "
            "console; if it was reinstalled, write its new key into `hostKey` of the stack's "
            f"hosts, then run `make up STACK={self.stack}`"
        )

    def _no_way(self) -> str:
        """Advice about a machine that does not answer."""
        if self._ssh.rented:
            again = f"`make refresh STACK={self.stack}` tells whether it is still there"
            return f" (allowedCidrs)? {again}"
        port = f" -p {self._ssh.port}" if self._ssh.port != ssh.PORT else ""
        return f"? `ssh -v{port} {self._ssh.user}@{self._ssh.host}` shows how far it gets"

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

    async def reach(self, host: str, port: int, here: asyncssh.SSHForwarder) -> None:
        """Connects from the host to an address, for a connection here.

        Raises:
            asyncssh.ChannelOpenError: the host cannot, or may not.
            TimeoutError: not within REACH_S.
        """

        def session() -> Any:  # asyncssh's types do not know that it can be one
            return asyncssh.SSHForwarder(here)

        async with asyncio.timeout(REACH_S):
            while True:
                await self._up.wait()
                assert self._connection is not None  # noqa: S101 - for the type checker
                try:
                    await self._connection.create_connection(session, host, port)
                except (asyncssh.Error, OSError):
                    if self._up.is_set():
                        raise
                else:
                    return

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            try:
                await asyncio.wait_for(self._connection.wait_closed(), CLOSE_S)
            except TimeoutError:
                self._connection.abort()
