"""A node provider for Ray's autoscaler that starts nothing: it records wishes.

For machines that only another program can make, since making them takes an account's key. Two files
in one folder of the head's machine: the nodes that Ray wants, written here; and those there,
written by `python -m infra.scale`, which reads the wish and meets it. A wish outlives the head, and
a machine has one name, so a crash never requests a node twice.

This module is a file of the head, and needs only Ray. Ray's autoscaler imports it.
"""

import json
import os
import threading
from pathlib import Path
from typing import Any

from ray.autoscaler import tags
from ray.autoscaler.node_launch_exception import NodeLaunchException
from ray.autoscaler.node_provider import NodeProvider

WANTED = "wanted.json"  # lists of nodes' names
THERE = "there.json"


class Provider(NodeProvider):
    """Wishes for nodes.

    Args:
        provider_config: `folder` of the two files; `head`, name and type of the head; `nodes`,
            types of the workers by name; `group`, names of those that come and go; `least`, how
            many of them are always wanted.
        cluster_name: of the cluster.
    """

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._head, head_type = provider_config["head"]
        self._group: list[str] = provider_config["group"]
        self._types: dict[str, str] = {**provider_config["nodes"], self._head: head_type}
        self._folder = Path(provider_config["folder"])
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Names that the last look told Ray: no new node may get one of them. Otherwise Ray takes it
        # for the node that ended, and never for idle.
        self._listed: frozenset[str] = frozenset()
        # Ray wishes in several threads, and two must not choose the same.
        self._choosing = threading.Lock()
        with self._choosing:
            self._write(self._wanted())

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """Return the names of the wanted nodes, there yet or not.

        Nodes on their way count: otherwise Ray would wish for them again.
        """
        wanted = self._wanted()
        here = [name for name in self._types if name not in self._group or name in wanted]
        self._listed = frozenset(here)
        return [name for name in here if tag_filters.items() <= self.node_tags(name).items()]

    def is_running(self, node_id: str) -> bool:
        """Return whether a node is wanted; only Ray knows whether it runs there."""
        return node_id not in self._group or node_id in self._wanted()

    def is_terminated(self, node_id: str) -> bool:
        """Return whether a node is not wanted."""
        return not self.is_running(node_id)

    def node_tags(self, node_id: str) -> dict[str, str]:
        """Return a node's tags for the autoscaler."""
        is_head = node_id == self._head
        return {
            tags.TAG_RAY_NODE_KIND: tags.NODE_KIND_HEAD if is_head else tags.NODE_KIND_WORKER,
            tags.TAG_RAY_USER_NODE_TYPE: self._types[node_id],
            tags.TAG_RAY_NODE_STATUS: tags.STATUS_UP_TO_DATE,
        }

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        """Do nothing: tags follow from the declarations."""

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
        """Wish for nodes of a type.

        One that is still there, and about to be ended, is not free: its Ray node has ended.

        Raises:
            NodeLaunchException: fewer are free.
        """
        kind = tags_[tags.TAG_RAY_USER_NODE_TYPE]
        with self._choosing:
            wanted, there = self._wanted(), self._read(THERE) or []
            free = [
                name
                for name in self._group
                if self._types[name] == kind and name not in (*wanted, *there, *self._listed)
            ]
            if free[:count]:
                self._write([*wanted, *free[:count]])
        if len(free) < count:
            raise NodeLaunchException(
                "all nodes are in use", f"{len(free)} of {count} nodes of {kind} are free", None
            )

    def terminate_node(self, node_id: str) -> None:
        """Stop wishing for a node; nodes that are always there stay."""
        with self._choosing:
            wanted = self._wanted()
            if node_id in wanted:
                self._write([name for name in wanted if name != node_id])

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration as it is."""
        return cluster_config

    def _wanted(self) -> list[str]:
        """Return the wanted nodes; without a wish those there, and at least `least`."""
        wanted = self._read(WANTED)
        if wanted is None:
            wanted = self._read(THERE) or []
            others = [name for name in self._group if name not in wanted]
            wanted += others[: max(0, self.provider_config["least"] - len(wanted))]
        return [name for name in self._group if name in wanted]

    def _read(self, name: str) -> list[str] | None:
        try:
            return [str(each) for each in json.loads((self._folder / name).read_text())]
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, wanted: list[str]) -> None:
        """Write the wish in one step and durably: half of it would end machines."""
        draft = self._folder / f"{WANTED}.new"
        with draft.open("w") as file:
            json.dump([name for name in self._group if name in wanted], file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / WANTED)
