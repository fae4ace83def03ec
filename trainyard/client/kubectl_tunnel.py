"""The connection to a stack on Kubernetes: each service at a local port, by a kubectl of its own.

A kubectl ends with its pod; it is started again, at the same local port.
"""

import functools
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from trainyard.access.kubectl import Forward, KubectlError
from trainyard.access.outputs import DASHBOARD_URL
from trainyard.client import health
from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.stack_connection import StackConnection

RETRY_MIN_S = 0.5
RETRY_MAX_S = 15.0


class KubectlTunnel(StackConnection):
    """The connection to a stack on Kubernetes."""

    def __init__(
        self, outputs: StackOutputs, report: Callable[[str], None], *, same_ports: bool = False
    ) -> None:
        super().__init__(outputs, report, same_ports=same_ports)
        assert outputs.cluster is not None  # noqa: S101 - for the type checker
        self._cluster = outputs.cluster
        self._closing = threading.Event()
        self._keepers: list[_Keeper] = []

    def wait(self) -> None:
        """Returns when the connection is closed; what is lost is tried again until then."""
        self._closing.wait()

    def _open(self) -> None:
        for service in self.outputs.services:
            port = urlsplit(service.url).port
            name = self._cluster.services.get(str(port))
            if name is None or port is None:
                continue
            try:
                keeper = _Keeper(
                    functools.partial(Forward, self._cluster.cluster, name, port),
                    name,
                    port if self._same_ports else 0,
                    self._closing,
                    self._report,
                )
            except KubectlError as error:
                if service.output != DASHBOARD_URL:  # most commands need that page only
                    self._report(f"tunnel: {error}")
                    continue
                raise ClientError(
                    f"{error}. Does `{' '.join(self._cluster.cluster.kubectl)} get pods` show it "
                    f"running? {health.remedy(self.outputs)}"
                ) from None
            self._keepers.append(keeper)
            self._forwarded(service, keeper.port, f"{name}:{port}")

    def _close(self) -> None:
        self._closing.set()
        for keeper in self._keepers:
            keeper.close()


class _Keeper:
    """One service's kubectl, started again when it ends.

    Args:
        start: starts a kubectl; takes `local`, a port of this machine, 0 for any.
        service: its name.
        local: the port that is wanted.
        closing: set when the connection ends.
        report: takes a sentence.

    Raises:
        KubectlError: the service is not reached.
    """

    def __init__(
        self,
        start: Callable[..., Forward],
        service: str,
        local: int,
        closing: threading.Event,
        report: Callable[[str], None],
    ) -> None:
        self._start, self._service, self._closing, self._report = start, service, closing, report
        try:
            self._forward = start(local=local)
        except KubectlError:
            if not local:
                raise
            self._forward = start(local=0)  # the wanted one is taken
        threading.Thread(target=self._keep, name=f"tunnel-{service}", daemon=True).start()

    @property
    def port(self) -> int:
        return self._forward.port

    def close(self) -> None:
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
                    self._forward = self._start(local=self.port)
                except KubectlError:
                    delay = min(2 * delay, RETRY_MAX_S)
                else:
                    self._report(f"tunnel: the way to {self._service} is back")
                    break
            if self._closing.is_set():
                self._forward.close()
                return
