"""One worker of a Ray cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from cluster import autoscaling, ray_head, ray_leave, ray_node, ray_start
from cluster.inputs import join, lift
from cluster.ray_node import NodeAddition, NodeResources, RayPorts
from cluster.service import HealthCheck, Leave, Port, Runtime, Service
from cluster.storage import Storage


@dataclass(frozen=True, kw_only=True)
class RayWorkerArgs:
    """Arguments of a worker.

    Attributes:
        runtime: where it runs.
        index: number of the worker, from 0.
        resources: what it offers to jobs.
        ports: the cluster's ports.
        token: bearer token of every Ray endpoint.
        serve_token: bearer token of every served model.
        storage: where jobs keep their results.
        additions: what other services add to it.
        gpus: indexes of the host's accelerators that it may use.
        autoscaled: whether the head has an autoscaler, which must know this node.
        elastic: whether its machine is launched and ended on request.
    """

    runtime: Runtime
    index: int
    resources: pulumi.Input[NodeResources]
    ports: RayPorts
    token: pulumi.Input[str]
    serve_token: pulumi.Input[str]
    storage: Storage
    additions: Sequence[NodeAddition]
    gpus: Sequence[int]
    autoscaled: bool = False
    elastic: bool = False

    def __post_init__(self) -> None:
        if self.index < 0:
            raise ValueError(f"worker index {self.index} must be at least 0")


class RayWorker(pulumi.ComponentResource):
    """A worker.

    Attributes:
        node: name of the node.
    """

    node: pulumi.Output[str]

    def __init__(
        self, name: str, args: RayWorkerArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:RayWorker", name, None, opts)
        runtime, resources = args.runtime, args.resources
        service_name = service(args.index)
        # On an elastic machine it is started like any other.
        on_demand = isinstance(resources, NodeResources) and resources.growth is not None
        known: dict[str, pulumi.Input[str]] = {}
        if args.autoscaled:
            kind = lift(autoscaling.node_type, resources)
            known = autoscaling.node_environment(service_name, kind)
            known |= ray_start.JOINS_ONCE if args.elastic else {}
        node = args.index + 1  # after the head
        agent_port = ray_node.agent_port(args.ports, node)
        # No dependency on the head: its address is known, `ray start` waits for it, and head and
        # workers that start side by side are ready much sooner than one after the other.
        head = runtime.address(ray_head.SERVICE, args.ports.gcs)
        address, own = runtime.node_address(0), runtime.node_address(node)
        if isinstance(address, pulumi.Output) or address:
            head = join(address, f":{args.ports.gcs}")
        runtime.place(
            Service(
                name=service_name,
                program="ray",
                arguments=[
                    "start",
                    join("--address=", head),
                    *ray_node.common_flags(service_name, node, runtime, args.resources, args.ports),
                ],
                environment={
                    **ray_node.environment(
                        service_name,
                        runtime,
                        args.ports,
                        args.storage,
                        args.additions,
                    ),
                    **ray_node.threads(args.resources),
                    **ray_start.environment(runtime.file(service_name, ray_start.FILE)),
                    **known,
                },
                files={ray_start.FILE: ray_start.text(), ray_leave.FILE: ray_leave.text()},
                leave=Leave(file=ray_leave.FILE, arguments=[head, own], drains=True),
                secrets=ray_node.secret_files(
                    args.token, args.storage, args.additions, serve_token=args.serve_token
                ),
                volumes=ray_node.volumes(args.additions),
                gpus=args.gpus,
                shared_memory_mib=lift(ray_node.shared_memory_mib, args.resources),
                memory_mib=lift(ray_node.memory_limit_mib, args.resources),
                stop_seconds=ray_node.STOP_SECONDS,
                on_demand=on_demand,
                ports=[Port(number=agent_port, setting="agentPort")],
                # The agent asks the head whether this node is alive: 200 means it has joined.
                health=[HealthCheck(port=agent_port, path="/api/local_raylet_healthz")],
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.node = pulumi.Output.from_input(service_name)
        self.register_outputs({"node": self.node})


def service(index: int) -> str:
    """Return the name of the service of worker `index`."""
    return f"ray-worker-{index}"
