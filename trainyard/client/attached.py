"""An attached cluster as a connection: what its nodes offer is asked at each start of a command.

Nodes join and leave it without us. Those that its autoscaler may start are known from `train
attach`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from trainyard.client.dashboard import DashboardError
from trainyard.client.outputs import Node
from trainyard.client.stack_connection import StackConnection
from trainyard.client.state import ClusterState


class Attached(StackConnection):
    """A cluster that answers here already; one that does not keeps its last known nodes."""

    def _open(self) -> None:
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
