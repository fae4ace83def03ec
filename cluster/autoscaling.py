"""Ray's autoscaler on the head: the nodes that it may start, and the provider that starts them.

Every node that it may start is declared in the stack, so a preview shows it, its ports are kept for
it, and a destroy ends it, also when the head is gone. Ray's v2 autoscaler decides; the runtime's
node provider starts and stops the declared nodes, and keeps no list of its own.

Permanent nodes are in the configuration too: otherwise the autoscaler would not see their free
capacity, and would start others.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster import ray_node
from cluster.inputs import lift
from cluster.ray_node import MIB, NodeResources

CONFIG_FILE = "autoscaling.json"  # JSON is YAML
PROVIDER_FILE = "node_provider.py"  # ray_start.py puts it where the autoscaler finds it
# No group's name begins like this.
HEAD_TYPE, WORKER_TYPE = "_head", "_worker"
UPDATE_SECONDS = 1  # between two looks of the autoscaler; Ray's default is 5
# How long a node that has not come stays requested though no job waits; Ray's default is an hour.
PENDING, PENDING_SECONDS = "RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", 60
# How long a node may take until Ray runs on it; Ray's default is an hour.
STARTING = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
# Nodes that may start at once for each running node: enough to start all of them.
UPSCALING_SPEED = 1000
# Keys that Ray's loader asks for, and that mean something only where it starts machines itself.
UNUSED: dict[str, Any] = {
    "auth": {},
    "docker": {},
    "file_mounts": {},
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "rsync_filter": [],
    "cluster_synced_files": [],
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
}


@dataclass(frozen=True, kw_only=True)
class RayNodeProvider:
    """A node provider, by which Ray's autoscaler starts and stops services on demand.

    Attributes:
        text: source of a Python module with a class `StackNodeProvider`, as Ray wants it; it needs
            only Ray and the packages of Ray nodes.
        settings: settings of the provider, under `provider` in the autoscaler's configuration.
        secrets: content of its secret files by name; the head gets them next to its own.
    """

    text: str
    settings: Mapping[str, Any]
    secrets: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)


def grows(workers: Sequence[Any]) -> bool:
    """Return whether any worker runs on demand; rented machines never do."""
    return any(isinstance(each, NodeResources) and each.growth is not None for each in workers)


def on_demand(workers: Sequence[Any]) -> int:
    """Return how many workers run only when they are needed."""
    groups = {
        each.group: each.growth.least
        for each in workers
        if isinstance(each, NodeResources) and each.growth is not None
    }
    declared = Counter(getattr(each, "group", "") for each in workers)
    return sum(declared[group] - least for group, least in groups.items())


def head_environment() -> dict[str, pulumi.Input[str]]:
    """Return the variables of a head with an autoscaler."""
    return {
        "RAY_enable_autoscaler_v2": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": str(UPDATE_SECONDS),
        PENDING: str(PENDING_SECONDS),
        **node_environment(ray_node.HEAD, HEAD_TYPE),
    }


def node_environment(service: str, node_type: pulumi.Input[str]) -> dict[str, pulumi.Input[str]]:
    """Return the variables by which the autoscaler knows a node."""
    return {"RAY_CLOUD_INSTANCE_ID": service, "RAY_NODE_TYPE_NAME": node_type}


def node_type(node: NodeResources) -> str:
    """Return the name of a worker's type."""
    return node.group or WORKER_TYPE


def files(
    head: NodeResources,
    workers: Mapping[str, pulumi.Input[NodeResources]],
    provider: RayNodeProvider,
) -> dict[str, pulumi.Input[str]]:
    """Return the files of a head with an autoscaler by name; see `config`."""

    def known_resources(*nodes: NodeResources) -> str:
        return config(head, dict(zip(workers, nodes, strict=True)), provider)

    return {CONFIG_FILE: lift(known_resources, *workers.values()), PROVIDER_FILE: provider.text}


def config(
    head: NodeResources, workers: Mapping[str, NodeResources], provider: RayNodeProvider
) -> str:
    """Return the autoscaler's configuration; `workers` are by the names of their services."""
    count = Counter(node_type(node) for node in workers.values())
    types = {HEAD_TYPE: _type(head, 0, 0)}
    for node in workers.values():
        name = node_type(node)
        types[name] = _type(node, node.growth.least if node.growth else count[name], count[name])
    return json.dumps(
        {
            **UNUSED,
            "cluster_name": "trainyard",
            "max_workers": len(workers),
            "idle_timeout_minutes": 5,  # each type has its own
            "upscaling_speed": UPSCALING_SPEED,
            "provider": {
                "type": "external",
                "module": f"{PROVIDER_FILE.removesuffix('.py')}.StackNodeProvider",
                "disable_node_updaters": True,  # a node starts Ray itself
                "head": [ray_node.HEAD, HEAD_TYPE],
                "nodes": {name: node_type(node) for name, node in workers.items()},
                **provider.settings,
            },
            "head_node_type": HEAD_TYPE,
            "available_node_types": types,
        },
        indent=2,
        sort_keys=True,
    )


def _type(node: NodeResources, least: int, most: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "node_config": {},
        "min_workers": least,
        "max_workers": most,
        "resources": {
            "CPU": node.cpus,
            "GPU": node.gpus,
            "memory": node.memory_mib * MIB,
            "object_store_memory": node.object_store_mib * MIB,
            **node.resources,
        },
    }
    if node.group:
        found["labels"] = {ray_node.GROUP_LABEL: node.group}
    if node.growth is not None:
        found["idle_timeout_s"] = node.growth.idle_seconds
    return found
