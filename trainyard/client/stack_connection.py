"""A stack that answers here as a connection, from which those to other machines derive."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import urlsplit

from trainyard.client.outputs import Node, Service, StackOutputs

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Route:
    """One service: its address here, and at the stack."""

    service: str
    here: str
    there: str


class StackConnection:
    """A stack on this machine, whose services answer here already; others derive from it.

    Attributes:
        outputs: the stack's outputs, with addresses that answer here.
        routes: the forwarded services.
    """

    def __init__(
        self, outputs: StackOutputs, report: Callable[[str], None], *, same_ports: bool = False
    ) -> None:
        """Prepares the connection; nothing is connected yet.

        Args:
            outputs: with addresses as they are at the stack; empty ones are left out.
            report: takes a sentence when the connection is lost, back, or given up; called from
                other threads.
            same_ports: forward from the port numbers of the stack, where they are free here.
        """
        self.outputs = outputs
        self.routes: list[Route] = []
        self._report = report
        self._same_ports = same_ports

    def __enter__(self) -> Self:
        """Connects; ClientError if the stack is not reached, or refuses the login."""
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def wait(self) -> None:
        """Returns when the connection has ended; one that gave up has reported why."""

    def _open(self) -> None: ...

    def _close(self) -> None: ...

    def _forwarded(self, service: Service, port: int, there: str) -> None:
        """Notes that a port of this machine leads to a service, which is shown as `there`."""
        here = urlsplit(service.url)._replace(netloc=f"{LOOPBACK}:{port}").geturl()
        self.outputs = self.outputs.at({service.output: here})
        # A notebook's token is in the query.
        shown = [url.partition("?")[0] for url in (here, there)]
        self.routes.append(Route(service=service.title, here=shown[0], there=shown[1]))


class Attached(StackConnection):
    """An attached cluster: its nodes join and leave without us, so each command asks for them.

    Those that its autoscaler may start are known from `train attach`. A cluster that does not
    answer keeps its last known nodes.
    """

    def _open(self) -> None:
        from trainyard.client.dashboard import DashboardError  # noqa: PLC0415 - slow
        from trainyard.client.state import ClusterState  # noqa: PLC0415 - slow

        with suppress(DashboardError):
            alive = [Node.of(value) for value in ClusterState(self.outputs).declared()]
            nodes = [*alive, *_missing(self.outputs.nodes, alive)]
            self.outputs = replace(self.outputs, nodes=tuple(nodes))


def _missing(known: tuple[Node, ...], alive: list[Node]) -> list[Node]:
    """The nodes on demand without those that run, which are told by what they offer."""
    offers = [(node.cpus, node.gpus, node.resources) for node in alive]
    missing = []
    for node in known:
        offer = (node.cpus, node.gpus, node.resources)
        if node.on_demand and offer in offers:
            offers.remove(offer)
        elif node.on_demand:
            missing.append(node)
    return missing
