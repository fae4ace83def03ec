"""A node provider for Ray's autoscaler: nodes are programs of the stack's supervisord.

All of them are declared there, and supervisord alone knows which run. Nothing is kept here, so
whoever is killed at whatever moment, no node is lost or started twice.

This module is a file of the head, and needs nothing beside it but Ray and supervisor. Ray's
autoscaler imports it.
"""

import contextlib
import threading
import xmlrpc.client
from collections.abc import Iterator
from typing import Any

from ray.autoscaler import tags
from ray.autoscaler.node_launch_exception import NodeLaunchException
from ray.autoscaler.node_provider import NodeProvider
from supervisor.xmlrpc import SupervisorTransport

HERE = ("STARTING", "RUNNING", "BACKOFF", "STOPPING")  # states of a program that has processes


class Provider(NodeProvider):
    """Starts and stops nodes.

    Args:
        provider_config: `supervisor`, the folder of supervisord; `head`, name and type of the head;
            `nodes`, types of the workers by name.
        cluster_name: of the cluster.
    """

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._head, head_type = provider_config["head"]
        self._workers: dict[str, str] = provider_config["nodes"]
        self._types = {self._head: head_type, **self._workers}
        # Ray starts nodes in several threads, and two must not choose the same.
        self._choosing = threading.Lock()

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """Return the names of the nodes that have processes."""
        states = self._states()
        here = [self._head, *(name for name in self._workers if states.get(name) in HERE)]
        return [name for name in here if tag_filters.items() <= self.node_tags(name).items()]

    def is_running(self, node_id: str) -> bool:
        """Return whether a node has processes; whether Ray runs there, Ray knows."""
        return node_id == self._head or self._states().get(node_id) in HERE

    def is_terminated(self, node_id: str) -> bool:
        """Return whether a node has none."""
        return not self.is_running(node_id)

    def node_tags(self, node_id: str) -> dict[str, str]:
        """Return what the autoscaler is to know of a node."""
        is_head = node_id == self._head
        return {
            tags.TAG_RAY_NODE_KIND: tags.NODE_KIND_HEAD if is_head else tags.NODE_KIND_WORKER,
            tags.TAG_RAY_USER_NODE_TYPE: self._types[node_id],
            tags.TAG_RAY_NODE_STATUS: tags.STATUS_UP_TO_DATE,
        }

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        """Do nothing: tags follow from what is declared."""

    def internal_ip(self, node_id: str) -> str:
        """Return the name: nobody logs in to a node."""
        return node_id

    external_ip = internal_ip

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, Any],  # noqa: ARG002 (Ray's signature)
        tags_: dict[str, str],
        count: int,
        resources: dict[str, float],  # noqa: ARG002
        labels: dict[str, str],  # noqa: ARG002
    ) -> None:
        """Start nodes of a type.

        Raises:
            NodeLaunchException: fewer are free.
        """
        wanted = tags_[tags.TAG_RAY_USER_NODE_TYPE]
        with self._choosing:
            states = self._states()
            free = [
                name
                for name, kind in self._workers.items()
                if kind == wanted and states.get(name) not in (None, *HERE)
            ]
            for name in free[:count]:
                with self._supervisor() as supervisor:
                    supervisor.startProcess(name, False)
        if len(free) < count:
            raise NodeLaunchException(
                "all nodes are in use", f"{len(free)} of {count} nodes of {wanted} are free", None
            )

    def terminate_node(self, node_id: str) -> None:
        """Stop a node; one that has ended is left at that."""
        with contextlib.suppress(xmlrpc.client.Fault), self._supervisor() as supervisor:
            supervisor.stopProcess(node_id, False)

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration as it is."""
        return cluster_config

    def _states(self) -> dict[str, str]:
        with self._supervisor() as supervisor:
            return {each["name"]: each["statename"] for each in supervisor.getAllProcessInfo()}

    @contextlib.contextmanager
    def _supervisor(self) -> Iterator[Any]:
        # A connection for each call: there are several threads.
        socket = f"unix://{self.provider_config['supervisor']}/supervisor.sock"
        transport = SupervisorTransport(None, None, socket)
        try:
            yield xmlrpc.client.ServerProxy("http://localhost", transport=transport).supervisor
        finally:
            transport.close()
