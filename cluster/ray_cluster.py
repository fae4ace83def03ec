"""A Ray cluster: one head and its workers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulumi

from cluster import autoscaling, ray_head, ray_worker
from cluster.autoscaling import NodeProvider
from cluster.descriptor import Descriptor, Endpoint, Limit, PortSetting, Source
from cluster.inputs import lift
from cluster.ray_head import RayHead, RayHeadArgs
from cluster.ray_node import NodeAddition, NodeResources, RayPorts
from cluster.ray_worker import RayWorker, RayWorkerArgs
from cluster.service import Runtime
from cluster.stack import Stack
from cluster.storage import Storage
from trainyard.access import outputs

TOKEN_BYTES = 32
NODE_SWITCH_PORT = "nodeSwitchPort"


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
        additions: what other services add to the nodes.
        gpus: indexes of the host's accelerators that each worker may use.
        node_provider: starts and stops workers of groups that grow; None if none does.
        elastic: indexes of workers whose machines are launched and ended on request.
        not_launched: indexes of those among them whose machines do not exist now.
    """

    runtime: Runtime
    head: NodeResources
    workers: Sequence[pulumi.Input[NodeResources]]
    ports: RayPorts
    token: pulumi.Input[str]
    serve_token: pulumi.Input[str]
    storage: Storage
    additions: Sequence[NodeAddition]
    gpus: Sequence[Sequence[int]]
    node_provider: NodeProvider | None = None
    elastic: Collection[int] = ()
    not_launched: Collection[int] = ()

    def __post_init__(self) -> None:
        if len(self.gpus) != len(self.workers):
            raise ValueError(f"{len(self.workers)} workers, but GPUs for {len(self.gpus)}")
        if not self.workers and not self.head.cpus:
            raise ValueError("a cluster without workers needs a head with at least 1 CPU")


class RayCluster(pulumi.ComponentResource):
    """The cluster.

    Attributes:
        dashboard_url: URL of the dashboard and job server, for users.
        serve_url: URL of Ray Serve's proxy, for users.
        nodes: the head, then the workers; each as `described` returns it.
    """

    dashboard_url: pulumi.Output[str]
    serve_url: pulumi.Output[str]
    nodes: pulumi.Output[list[dict[str, Any]]]

    def __init__(
        self, name: str, args: RayClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:RayCluster", name, None, opts)
        autoscaler, its_own = _autoscaler(args)
        head = RayHead(
            f"{name}-head",
            RayHeadArgs(
                runtime=args.runtime,
                resources=args.head,
                ports=args.ports,
                token=args.token,
                serve_token=args.serve_token,
                storage=args.storage,
                additions=[*args.additions, *its_own],
                autoscaling=autoscaler,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        on_workers = [addition for addition in args.additions if not addition.head_only]
        for index, resources in enumerate(args.workers):
            if index in args.not_launched:
                continue
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
                    additions=on_workers,
                    gpus=args.gpus[index],
                    autoscaled=bool(autoscaler),
                    elastic=index in args.elastic,
                ),
                pulumi.ResourceOptions(parent=self),
            )
        self.dashboard_url = head.dashboard_url
        self.serve_url = head.serve_url
        self.nodes = pulumi.Output.from_input(
            [
                described(ray_head.SERVICE, args.head),
                *(
                    lift(
                        partial(
                            described, ray_worker.service(i), launched=i not in args.not_launched
                        ),
                        node,
                    )
                    for i, node in enumerate(args.workers)
                ),
            ]
        )
        self.register_outputs({"dashboard_url": self.dashboard_url, "nodes": self.nodes})


def _autoscaler(
    args: RayClusterArgs,
) -> tuple[dict[str, pulumi.Input[str]], list[NodeAddition]]:
    """Return files and secrets of the head's autoscaler, none if no group of nodes grows."""
    if args.node_provider is None:
        return {}, []
    workers = {ray_worker.service(index): node for index, node in enumerate(args.workers)}
    secrets = NodeAddition(
        environment=lambda _, __: {}, secrets=args.node_provider.secrets, head_only=True
    )
    return autoscaling.files(args.head, workers, args.node_provider), [secrets]


def described(name: str, node: NodeResources, *, launched: bool = True) -> dict[str, Any]:
    """Return a node's entry in the stack's output `nodes`.

    Args:
        name: of its service.
        node: what it offers.
        launched: whether its machine exists; of an elastic one, at the last `up`.
    """
    return {
        "name": name,
        "group": node.group,
        "cpus": node.cpus,
        "gpus": node.gpus,
        "memoryMib": node.memory_mib,
        "objectStoreMib": node.object_store_mib,
        "resources": dict(node.resources),
        "onDemand": node.growth is not None,
        "hourlyCost": node.hourly_cost,
        "launched": launched,
    }


def declare(stack: Stack) -> None:
    """Declare the cluster of a stack."""
    ray = RayCluster(
        "ray",
        RayClusterArgs(
            runtime=stack.runtime,
            head=stack.head,
            workers=stack.workers,
            ports=RayPorts.of(stack.settings.ports),
            token=stack.token,
            serve_token=stack.serve_token,
            storage=stack.storage,
            additions=stack.additions,
            gpus=stack.gpus,
            node_provider=stack.node_provider,
            elastic=stack.elastic,
            not_launched=stack.not_launched,
        ),
    )
    stack.outputs |= {
        DASHBOARD.url: ray.dashboard_url,
        DASHBOARD.login: stack.token,
        SERVE.url: ray.serve_url,
        SERVE.login: stack.serve_token,
        outputs.NODES: ray.nodes,
    }


DASHBOARD = Endpoint(title="Ray dashboard", url=outputs.DASHBOARD_URL, login=outputs.RAY_TOKEN)
# Nothing answers there before something is served.
SERVE = Endpoint(title="Ray Serve", url=outputs.SERVE_URL, login=outputs.SERVE_TOKEN)
DESCRIPTOR = Descriptor(
    program="ray",
    declare=declare,
    service=ray_head.SERVICE,
    more=lambda workers: tuple(ray_worker.service(index) for index in range(workers)),
    source=Source.ENVIRONMENT,
    ports=(
        PortSetting(key="dashboardPort"),
        PortSetting(key="gcsPort", published=False),
        PortSetting(key="rayClientPort", published=False),
        PortSetting(key="servePort"),
        PortSetting(key="autoscalerMetricsPort", published=False),
        PortSetting(key="dashboardMetricsPort", published=False),
        PortSetting(key="agentPort", published=False, each_node=True),
        PortSetting(key=NODE_SWITCH_PORT, published=False, waking=True),
    ),
    # Memory follows from what a node offers. Three nodes together have fewer processes than a
    # kernel allows by default (32768).
    limit=Limit(memory_mib=0, processes=8192),
    endpoints=(DASHBOARD, SERVE),
)
