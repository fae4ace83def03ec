"""A Ray cluster: one head, with control service, dashboard and job server, and its workers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import pulumi
from pydantic import Field

from cluster import autoscaling, job_processes, ray_node
from cluster.descriptor import Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join, lift
from cluster.job_processes import JobProcesses
from cluster.model import Says, setting
from cluster.ray_node import (
    HEAD,
    JOB_START,
    JOB_START_SECONDS,
    NodeAddition,
    NodeResources,
    worker_name,
)
from cluster.service import HealthCheck, LeaveSteps, Port, Runtime, Service
from node import ray_command, ray_leave, ray_start, source_text, worker_start
from trainyard.access import outputs

NODE_SWITCH_PORT = "nodeSwitchPort"
NODE_FILES = (ray_command, ray_start, ray_leave, worker_start)
STEADY_SECONDS = 5  # a head that lacks a port ends some seconds after its dashboard answers
# A node whose machine or container is gone stops answering. By Ray's own defaults the head
# gives it up after a minute or more; with these, after 20 s: five checks of 3 s, one each second.
HEALTH_CHECKS = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "3000"}


class Cluster(pulumi.ComponentResource):
    """The cluster of a stack, whatever starts its nodes.

    Attributes:
        dashboard_url: URL of the dashboard and job server, for users.
        serve_url: URL of Ray Serve's proxy, for users.
        nodes: the head, then the workers; each as `node_output` returns it.
    """

    dashboard_url: pulumi.Output[str]
    serve_url: pulumi.Output[str]
    nodes: pulumi.Output[list[dict[str, Any]]]

    def export(
        self, stack: Stack, runtime: Runtime, nodes: Iterable[pulumi.Input[dict[str, Any]]]
    ) -> None:
        """Have the stack export its nodes, and the URLs of dashboard and Ray Serve's proxy."""
        self.nodes = pulumi.Output.all(*nodes)
        self.dashboard_url, self.serve_url = (
            pulumi.Output.concat("http://", runtime.public(HEAD, stack.port(key)))
            for key in ("dashboardPort", "servePort")
        )
        stack.outputs |= {
            DASHBOARD.url: self.dashboard_url,
            DASHBOARD.login: stack.token,
            SERVE.url: self.serve_url,
            SERVE.login: stack.serve_token,
            outputs.NODES: self.nodes,
        }


class RayCluster(Cluster):
    """A cluster whose head and workers are services of the stack."""

    def __init__(self, name: str, stack: Stack, opts: pulumi.ResourceOptions | None = None) -> None:
        if stack.gpus and len(stack.gpus) != len(stack.workers):
            raise ValueError(f"{len(stack.workers)} workers, but GPUs for {len(stack.gpus)}")
        if not stack.workers and not stack.head.cpus:
            raise ValueError("a cluster without workers needs a head with at least 1 CPU")
        super().__init__("trainyard:cluster:RayCluster", name, None, opts)
        runtime, child = stack.runtime, pulumi.ResourceOptions(parent=self)
        runtime.place(head(stack), child)
        # No dependency on the head: its address is known, `ray start` waits for it, and head and
        # workers that start side by side are ready much sooner than one after the other.
        for index in range(len(stack.workers)):
            if index not in stack.not_launched:
                runtime.place(worker(stack, index), child)
        nodes: list[pulumi.Input[dict[str, Any]]] = [node_output(HEAD, stack.head)]
        for index, node in enumerate(stack.workers):
            launched = index not in stack.not_launched
            nodes.append(lift(partial(node_output, worker_name(index), launched=launched), node))
        self.export(stack, runtime, nodes)
        self.register_outputs({"dashboard_url": self.dashboard_url, "nodes": self.nodes})


def head(stack: Stack) -> Service:
    """Return the head of a stack, whose other services have added to its nodes."""
    runtime, ports = stack.runtime, stack.settings.ports
    node = _node(stack, 0, stack.head, stack.additions)
    files: Mapping[str, pulumi.Input[str]] = {}
    secrets: Mapping[str, pulumi.Input[str]] = {}
    variables, flags = head_environment(HEAD, stack), [*node.arguments]
    if provider := stack.node_provider:
        workers = {worker_name(index): each for index, each in enumerate(stack.workers)}
        files, secrets = autoscaling.files(stack.head, workers, provider), provider.secrets
        variables |= autoscaling.head_environment()
        file = runtime.file(HEAD, autoscaling.CONFIG_FILE)
        flags.append(f"--autoscaling-config={file}")
    return replace(
        node,
        arguments=[*head_flags(runtime, ports), *flags],
        environment={**node.environment, **variables},
        files={**node.files, **files},
        secrets={**node.secrets, **secrets},
        leave=LeaveSteps(
            file=ray_leave.FILE, arguments=[_gcs(stack), ray_leave.EVERY], drains=False
        ),
        memory_mib=ray_node.head_memory_limit_mib(stack.head),
        ports=[
            Port(number=ports["dashboardPort"], setting="dashboardPort", published=True),
            Port(number=ports["gcsPort"], setting="gcsPort"),
            Port(number=ports["rayClientPort"], setting="rayClientPort"),
            # Nothing listens there before something is served, so health leaves it out.
            Port(number=ports["servePort"], setting="servePort", published=True),
            *node.ports,
            Port(number=ports["autoscalerMetricsPort"], setting="autoscalerMetricsPort"),
            Port(number=ports["dashboardMetricsPort"], setting="dashboardMetricsPort"),
        ],
        # A job needs both: the dashboard takes it, the head's agent starts its supervisor.
        health=[HealthCheck(port=ports["dashboardPort"], path="/api/gcs_healthz"), *node.health],
        listens=[ports["gcsPort"], ports["rayClientPort"]],
        steady_seconds=STEADY_SECONDS,
    )


def worker(stack: Stack, index: int) -> Service:
    """Return worker `index` of a stack, whose other services have added to its nodes."""
    resources = stack.workers[index]
    node = _node(stack, index + 1, resources, stack.on_workers)
    gcs, own = _gcs(stack), stack.runtime.node_address(index + 1)
    variables = ray_node.threads(resources)
    if stack.node_provider:
        kind = lift(autoscaling.node_type, resources)
        variables |= autoscaling.node_environment(node.name, kind)
        variables |= ray_start.JOINS_ONCE if index in stack.elastic else {}
    return replace(
        node,
        arguments=["start", join("--address=", gcs), *node.arguments],
        environment={**node.environment, **variables},
        leave=LeaveSteps(file=ray_leave.FILE, arguments=[gcs, own], drains=True),
        gpus=stack.gpus[index] if stack.gpus else (),
        # On an elastic machine it is started like any other: its resources are an Output.
        on_demand=isinstance(resources, NodeResources) and resources.growth is not None,
    )


def _node(
    stack: Stack,
    index: int,
    resources: pulumi.Input[NodeResources],
    additions: Sequence[NodeAddition],
) -> Service:
    """Return what the head (index 0) and workers (from 1) share."""
    name = worker_name(index - 1) if index else HEAD
    runtime, ports = stack.runtime, stack.settings.ports
    agent_port = ray_node.agent_port(ports, index)
    return Service(
        name=name,
        program="ray",
        script=ray_command.FILE,
        arguments=ray_node.common_flags(name, index, runtime, resources, ports),
        environment={
            **node_environment(name, stack),
            **ray_start.environment(runtime.file(name, ray_start.FILE)),
        },
        files={each.FILE: source_text(each.FILE) for each in NODE_FILES},
        secrets=ray_node.secret_files(
            stack.token, stack.storage, additions, serve_token=stack.serve_token
        ),
        volumes=[*ray_node.volumes(additions), *stack.volumes],
        shared_memory_mib=lift(ray_node.shared_memory_mib, resources),
        memory_mib=lift(ray_node.memory_limit_mib, resources),
        stop_seconds=ray_node.STOP_SECONDS,
        ports=[Port(number=agent_port, setting="agentPort")],
        # The agent asks the head whether this node is alive: 200 means it has joined.
        health=[HealthCheck(port=agent_port, path="/api/local_raylet_healthz")],
    )


def _gcs(stack: Stack) -> pulumi.Input[str]:
    """Return host:port of the head's control service, for all nodes."""
    own, port = stack.runtime.node_address(0), stack.settings.ports["gcsPort"]
    known = isinstance(own, pulumi.Output) or own
    return join(own, f":{port}") if known else stack.runtime.address(HEAD, port)


def head_flags(runtime: Runtime, ports: Mapping[str, int]) -> list[pulumi.Input[str]]:
    """Return the words after `ray` that start a head, without the flags that all nodes share."""
    return [
        "start",
        "--head",
        f"--port={ports['gcsPort']}",
        join("--dashboard-host=", runtime.listen_address(HEAD)),
        f"--dashboard-port={ports['dashboardPort']}",
        # Ray cannot be told not to open it once its packages are installed.
        f"--ray-client-server-port={ports['rayClientPort']}",
    ]


def node_environment(service: str, stack: Stack) -> dict[str, pulumi.Input[str]]:
    """Return the variables that all nodes have, for the program of a service."""
    processes = stack.settings.of_services[job_processes.SETTING].environment
    ports, additions = stack.settings.ports, stack.on_workers
    return ray_node.environment(service, stack.runtime, ports, stack.storage, additions, processes)


def head_environment(service: str, stack: Stack) -> dict[str, pulumi.Input[str]]:
    """Return the variables that only a head has."""
    runtime, ports = stack.runtime, stack.settings.ports
    start = stack.settings.of_services[JOB_START]
    variables: dict[str, pulumi.Input[str]] = {
        "AUTOSCALER_METRIC_PORT": str(ports["autoscalerMetricsPort"]),
        "DASHBOARD_METRIC_PORT": str(ports["dashboardMetricsPort"]),
        **HEALTH_CHECKS,
    }
    if start != JOB_START_SECONDS:  # a head is not restarted for Ray's default
        variables["RAY_JOB_START_TIMEOUT_SECONDS"] = str(start or "inf")
    for addition in stack.additions:
        if addition.head_only:
            variables |= addition.environment(runtime, service)
    # Hides the tab whose charts need a Grafana.
    variables.setdefault("RAY_GRAFANA_HOST", "DISABLED")
    return variables


def node_output(name: str, node: NodeResources, *, launched: bool = True) -> dict[str, Any]:
    """Return a node's entry in the stack's output `nodes`.

    `launched`: its machine exists; of an elastic one, at the last `up`.
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


DASHBOARD = Endpoint(title="Ray dashboard", url=outputs.DASHBOARD_URL, login=outputs.RAY_TOKEN)
# Nothing answers there before something is served.
SERVE = Endpoint(title="Ray Serve", url=outputs.SERVE_URL, login=outputs.SERVE_TOKEN)
DESCRIPTOR = Descriptor(
    program="ray",
    declare=partial(RayCluster, "ray"),
    service=HEAD,
    more=lambda workers: tuple(worker_name(index) for index in range(workers)),
    source=Source.ENVIRONMENT,
    ports=(
        PortSetting("dashboardPort", 8265, "Ray dashboard and job server"),
        PortSetting("gcsPort", 6379, "Ray's global control service", published=False),
        PortSetting("rayClientPort", 10001, "Ray client server, `ray://`", published=False),
        PortSetting(
            "servePort",
            8000,
            "Ray Serve's proxy on the head; it listens once `train serve` was used",
        ),
        PortSetting(
            "autoscalerMetricsPort", 27217, "Metrics of Ray's autoscaler monitor", published=False
        ),
        PortSetting("dashboardMetricsPort", 27227, "Metrics of the Ray dashboard", published=False),
        PortSetting(
            "agentPort",
            27365,
            "Agent of the head; workers take the ports after it, one each",
            published=False,
            each_node=True,
        ),
        PortSetting(
            NODE_SWITCH_PORT,
            8767,
            "Switch for the head to start and stop workers of other `hosts`, if a group of "
            "nodes grows",
            published=False,
            waking=True,
        ),
    ),
    # Memory follows from what a node offers. Three nodes together have fewer processes than a
    # kernel allows by default (32768).
    limit=Limit(memory_mib=0, processes=8192),
    settings={
        job_processes.SETTING: (
            JobProcesses,
            setting(
                JobProcesses(),
                "How processes of jobs start, to measure: `{niceness, allocator, preload}`",
                see="#processes-of-jobs",
            ),
        ),
        JOB_START: (
            Annotated[
                int,
                Says(
                    "must be whole seconds from 1 to 999999, or 0 for no limit",
                    "set it so",
                    Field(ge=0, le=999_999),
                ),
            ],
            setting(
                JOB_START_SECONDS,
                "Seconds after which Ray fails a job that could not start, because no node has "
                "what its entrypoint asks for; 1 to 999999. 0, for queues of hours: it stays "
                "PENDING for as long as it takes",
            ),
        ),
    },
    endpoints=(DASHBOARD, SERVE),
)
