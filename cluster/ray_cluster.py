"""A Ray cluster: one head and its workers."""

from functools import partial
from typing import Annotated, Any

import pulumi
from pydantic import Field

from cluster import ray_head, ray_worker
from cluster.descriptor import (
    Descriptor,
    Endpoint,
    Limit,
    PortSetting,
    Source,
    Stack,
)
from cluster.inputs import lift
from cluster.model import Says, setting
from cluster.ray_node import NodeResources
from trainyard.access import outputs

NODE_SWITCH_PORT = "nodeSwitchPort"


class RayCluster(pulumi.ComponentResource):
    """The cluster of a stack.

    Attributes:
        dashboard_url: URL of the dashboard and job server, for users.
        serve_url: URL of Ray Serve's proxy, for users.
        nodes: the head, then the workers; each as `described` returns it.
    """

    dashboard_url: pulumi.Output[str]
    serve_url: pulumi.Output[str]
    nodes: pulumi.Output[list[dict[str, Any]]]

    def __init__(self, name: str, stack: Stack, opts: pulumi.ResourceOptions | None = None) -> None:
        if stack.gpus and len(stack.gpus) != len(stack.workers):
            raise ValueError(f"{len(stack.workers)} workers, but GPUs for {len(stack.gpus)}")
        if not stack.workers and not stack.head.cpus:
            raise ValueError("a cluster without workers needs a head with at least 1 CPU")
        super().__init__("trainyard:cluster:RayCluster", name, None, opts)
        runtime, ports, child = (
            stack.runtime,
            stack.settings.ports,
            pulumi.ResourceOptions(parent=self),
        )
        runtime.place(ray_head.head(stack), child)
        # No dependency on the head: its address is known, `ray start` waits for it, and head and
        # workers that start side by side are ready much sooner than one after the other.
        for index in range(len(stack.workers)):
            if index not in stack.not_launched:
                runtime.place(ray_worker.worker(stack, index), child)
        self.dashboard_url, self.serve_url = (
            pulumi.Output.concat("http://", runtime.public(ray_head.SERVICE, port))
            for port in (ports["dashboardPort"], ports["servePort"])
        )
        self.nodes = pulumi.Output.from_input(
            [
                described(ray_head.SERVICE, stack.head),
                *(
                    lift(
                        partial(
                            described,
                            ray_worker.service(index),
                            launched=index not in stack.not_launched,
                        ),
                        node,
                    )
                    for index, node in enumerate(stack.workers)
                ),
            ]
        )
        self.register_outputs({"dashboard_url": self.dashboard_url, "nodes": self.nodes})


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
    ray = RayCluster("ray", stack)
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
        PortSetting(key="dashboardPort", default=8265, description="Ray dashboard and job server"),
        PortSetting(
            key="gcsPort", default=6379, description="Ray's global control service", published=False
        ),
        PortSetting(
            key="rayClientPort",
            default=10001,
            description="Ray client server, `ray://`",
            published=False,
        ),
        PortSetting(
            key="servePort",
            default=8000,
            description="Ray Serve's proxy on the head; it listens once `train serve` was used",
        ),
        PortSetting(
            key="autoscalerMetricsPort",
            default=27217,
            description="Metrics of Ray's autoscaler monitor",
            published=False,
        ),
        PortSetting(
            key="dashboardMetricsPort",
            default=27227,
            description="Metrics of the Ray dashboard",
            published=False,
        ),
        PortSetting(
            key="agentPort",
            default=27365,
            description="Agent of the head; workers take the ports after it, one each",
            published=False,
            each_node=True,
        ),
        PortSetting(
            key=NODE_SWITCH_PORT,
            default=8767,
            description="Switch for the head to start and stop workers of other `hosts`, if a "
            "group of nodes grows",
            published=False,
            waking=True,
        ),
    ),
    # Memory follows from what a node offers. Three nodes together have fewer processes than a
    # kernel allows by default (32768).
    limit=Limit(memory_mib=0, processes=8192),
    settings={
        ray_head.JOB_START: (
            Annotated[
                int,
                Says(
                    "must be whole seconds from 1 to 999999, or 0 for no limit",
                    "set it so",
                    Field(ge=0, le=999_999),
                ),
            ],
            setting(
                ray_head.JOB_START_SECONDS,
                "Seconds after which Ray fails a job that could not start, because no node has "
                "what its entrypoint asks for; 1 to 999999. 0: it stays PENDING for as long as it "
                "takes",
            ),
        )
    },
    endpoints=(DASHBOARD, SERVE),
)
