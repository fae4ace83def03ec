"""One worker of a Ray cluster."""

import pulumi

from cluster import autoscaling, ray_leave, ray_node, ray_start
from cluster.descriptor import Stack
from cluster.inputs import join, lift
from cluster.ray_node import NodeResources
from cluster.service import HealthCheck, Leave, Port, Service


def worker(stack: Stack, index: int) -> Service:
    """Return worker `index` of a stack, whose other services have added to its nodes."""
    runtime, ports, additions = stack.runtime, stack.settings.ports, stack.on_workers
    resources, name = stack.workers[index], service(index)
    elastic = index in stack.elastic
    # On an elastic machine it is started like any other: its resources are an Output.
    on_demand = isinstance(resources, NodeResources) and resources.growth is not None
    known: dict[str, pulumi.Input[str]] = {}
    if stack.node_provider:
        kind = lift(autoscaling.node_type, resources)
        known = autoscaling.node_environment(name, kind)
        known |= ray_start.JOINS_ONCE if elastic else {}
    node = index + 1  # after the head
    agent_port = ray_node.agent_port(ports, node)
    head = runtime.address(ray_node.HEAD, ports["gcsPort"])
    address, own = runtime.node_address(0), runtime.node_address(node)
    if isinstance(address, pulumi.Output) or address:
        head = join(address, f":{ports['gcsPort']}")
    return Service(
        name=name,
        program="ray",
        arguments=[
            "start",
            join("--address=", head),
            *ray_node.common_flags(name, node, runtime, resources, ports),
        ],
        environment={
            **ray_node.environment(name, runtime, ports, stack.storage, additions),
            **ray_node.threads(resources),
            **ray_start.environment(runtime.file(name, ray_start.FILE)),
            **known,
        },
        files={ray_start.FILE: ray_start.text(), ray_leave.FILE: ray_leave.text()},
        leave=Leave(file=ray_leave.FILE, arguments=[head, own], drains=True),
        secrets=ray_node.secret_files(
            stack.token, stack.storage, additions, serve_token=stack.serve_token
        ),
        volumes=ray_node.volumes(additions),
        gpus=stack.gpus[index] if stack.gpus else (),
        shared_memory_mib=lift(ray_node.shared_memory_mib, resources),
        memory_mib=lift(ray_node.memory_limit_mib, resources),
        stop_seconds=ray_node.STOP_SECONDS,
        on_demand=on_demand,
        ports=[Port(number=agent_port, setting="agentPort")],
        # The agent asks the head whether this node is alive: 200 means it has joined.
        health=[HealthCheck(port=agent_port, path="/api/local_raylet_healthz")],
    )


def service(index: int) -> str:
    """Return the name of the service of worker `index`."""
    return f"ray-worker-{index}"
