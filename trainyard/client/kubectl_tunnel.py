"""The way to a stack on Kubernetes: its services at local ports, each by a kubectl of its own.

A kubectl ends with its pod; it is started again, at the same local port.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from trainyard.access.kubectl import LOOPBACK, Forward, KubectlError
from trainyard.client.errors import ClientError
from trainyard.client.outputs import InCluster, StackOutputs
from trainyard.client.way import Route

RETRY_MIN_S = 0.5
RETRY_MAX_S = 15.0


class KubectlTunnel:
    """The services of a stack on this machine, while the context lasts.

    Attributes:
        outputs: of the stack, with the addresses that answer here.
        routes: the forwarded services.
    """

    outputs: StackOutputs
    routes: list[Route]

    def __init__(
        self,
        cluster: InCluster,
        outputs: StackOutputs,
        report: Callable[[str], None],
        *,
        same_ports: bool = False,
    ) -> None:
        """Notes what to do; nothing is started yet.

        Args:
            cluster: has the services.
            outputs: with addresses whose ports are those of the services.
            report: takes a sentence when a way is lost or back; called from other threads.
            same_ports: forward from the services' own port numbers, where they are free here.
        """
        self.outputs = outputs
        self.routes = []
        self._cluster = cluster
        self._report = report
        self._same_ports = same_ports
        self._closing = threading.Event()
        self._keepers: list[_Keeper] = []

    def __enter__(self) -> Self:
        """Starts kubectl for each service.

        Raises:
            ClientError: kubectl is missing, or Ray's dashboard, which most need, is not reached.
        """
        addresses: dict[str, str] = {}
        with ExitStack() as undo:
            undo.callback(self._close)
            for service in self.outputs.services:
                if not service.url:
                    continue
                address = urlsplit(service.url)
                port = address.port or 0
                name = self._cluster.services.get(str(port))
                if name is None:
                    continue
                keeper = self._keep(name, port, service.url)
                if keeper is None:
                    continue
                here = address._replace(netloc=f"{LOOPBACK}:{keeper.port}").geturl()
                addresses[service.output] = here
                # A notebook's token is in the query.
                self.routes.append(
                    Route(
                        service=service.title, here=here.partition("?")[0], there=f"{name}:{port}"
                    )
                )
            undo.pop_all()
        self.outputs = self.outputs.at(addresses)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def wait(self) -> None:
        """Returns when the tunnel is closed; lost ways are retried until then."""
        self._closing.wait()

    def _keep(self, service: str, port: int, url: str) -> _Keeper | None:
        """Starts kubectl; None for an unreachable page that most commands do not need."""
        try:
            keeper = _Keeper(self._cluster, service, port, self._closing, self._report)
            keeper.start(port if self._same_ports else 0)
        except KubectlError as error:
            if url != self.outputs.dashboard_url:
                self._report(f"tunnel: {error}")
                return None
            raise ClientError(
                f"{error}. Does `{' '.join(self._cluster.cluster.kubectl)} get pods` show it "
                f"running? `make up STACK={self.outputs.stack}` starts what has ended"
            ) from None
        self._keepers.append(keeper)
        return keeper

    def _close(self) -> None:
        self._closing.set()
        for keeper in self._keepers:
            keeper.close()


class _Keeper:
    """One service's kubectl, started again when it ends."""

    def __init__(
        self,
        cluster: InCluster,
        service: str,
        port: int,
        closing: threading.Event,
        report: Callable[[str], None],
    ) -> None:
        self._cluster = cluster.cluster
        self._service = service
        self._there = port
        self._closing = closing
        self._report = report
        self._forward: Forward

    @property
    def port(self) -> int:
        """The port of this machine."""
        return self._forward.port

    def start(self, local: int) -> None:
        """Starts it.

        Args:
            local: port of this machine that is wanted; 0 for any.

        Raises:
            KubectlError: the service is not reached.
        """
        try:
            self._forward = Forward(self._cluster, self._service, self._there, local=local)
        except KubectlError:
            if not local:
                raise
            self._forward = Forward(self._cluster, self._service, self._there)  # it is taken
        threading.Thread(target=self._keep, name=f"tunnel-{self._there}", daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        self._forward.close()

    def _keep(self) -> None:
        while True:
            reason = self._forward.wait()
            if self._closing.is_set():
                return
            why = f" ({reason})" if reason else ""
            self._report(f"tunnel: lost the way to {self._service}{why}; trying again")
            delay = RETRY_MIN_S
            while not self._closing.wait(delay):
                try:
                    self._forward = Forward(
                        self._cluster, self._service, self._there, local=self.port
                    )
                except KubectlError:
                    delay = min(2 * delay, RETRY_MAX_S)
                else:
                    self._report(f"tunnel: the way to {self._service} is back")
                    break
            if self._closing.is_set():
                self._forward.close()
                return
