"""A Ray cluster: one head and its workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulumi

from cluster import ray_head, ray_worker
from cluster.inputs import lift
from cluster.object_store import Storage
from cluster.ray_head import GrafanaUrls, RayHead, RayHeadArgs
from cluster.ray_node import NodeResources, RayPorts
from cluster.ray_worker import RayWorker, RayWorkerArgs
from cluster.service import Runtime
from cluster.tracking import TrackingAccess

TOKEN_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class RayClusterArgs:
    """Arguments of a cluster.

    Attributes:
        runtime: where its nodes run.
        head: what the head offers to jobs.
        workers: what each worker offers to jobs.
        ports: the cluster's ports.
        token: bearer token of every Ray endpoint.
        serve_token: bearer token of every served model.
        storage: where jobs keep their results.
        tracking: the tracking server that jobs log to; None without one.
        prometheus_url: of Prometheus, for other services; None without one.
        grafana: of Grafana, whose panels the dashboard shows; None without one.
        gpus: indexes of the host's accelerators that each worker may use.
        has_dataset: whether the nodes have the volume of the data set.
    """

    runtime: Runtime
    head: NodeResources
    workers: Sequence[pulumi.Input[NodeResources]]
    ports: RayPorts
    token: pulumi.Input[str]
    serve_token: pulumi.Input[str]
    storage: Storage
    tracking: TrackingAccess | None
    prometheus_url: pulumi.Input[str] | None
    grafana: GrafanaUrls | None
    gpus: Sequence[Sequence[int]]
    has_dataset: bool

    def __post_init__(self) -> None:
        if len(self.gpus) != len(self.workers):
            raise ValueError(f"{len(self.workers)} workers, but GPUs of {len(self.gpus)}")
        if not self.workers and not self.head.cpus:
            raise ValueError("a cluster without workers needs a head with at least 1 CPU")


class RayCluster(pulumi.ComponentResource):
    """The cluster.

    Attributes:
        dashboard_url: URL of the dashboard and job server, for users.
        serve_url: URL of Ray Serve's proxy, for users.
        nodes: list of {name, cpus, gpus, memoryMib, objectStoreMib, resources}, the head first.
    """

    dashboard_url: pulumi.Output[str]
    serve_url: pulumi.Output[str]
    nodes: pulumi.Output[list[dict[str, Any]]]

    def __init__(
        self, name: str, args: RayClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:RayCluster", name, None, opts)
        head = RayHead(
            f"{name}-head",
            RayHeadArgs(
                runtime=args.runtime,
                resources=args.head,
                ports=args.ports,
                token=args.token,
                serve_token=args.serve_token,
                storage=args.storage,
                tracking=args.tracking,
                prometheus_url=args.prometheus_url,
                grafana=args.grafana,
                has_dataset=args.has_dataset,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        for index, resources in enumerate(args.workers):
            RayWorker(
                f"{name}-worker-{index}",
                RayWorkerArgs(
                    runtime=args.runtime,
                    index=index,
                    resources=resources,
                    ports=args.ports,
                    token=args.token,
                    serve_token=args.serve_token,
                    storage=args.storage,
                    tracking=args.tracking,
                    gpus=args.gpus[index],
                    has_dataset=args.has_dataset,
                ),
                pulumi.ResourceOptions(parent=self),
            )
        self.dashboard_url = head.dashboard_url
        self.serve_url = head.serve_url
        self.nodes = pulumi.Output.from_input(
            [
                described(ray_head.SERVICE, args.head),
                *(
                    lift(partial(described, ray_worker.service(i)), node)
                    for i, node in enumerate(args.workers)
                ),
            ]
        )
        self.register_outputs({"dashboard_url": self.dashboard_url, "nodes": self.nodes})


def described(name: str, node: NodeResources) -> dict[str, Any]:
    """Return a node as the stack's output nodes has it."""
    return {
        "name": name,
        "cpus": node.cpus,
        "gpus": node.gpus,
        "memoryMib": node.memory_mib,
        "objectStoreMib": node.object_store_mib,
        "resources": dict(node.resources),
    }
