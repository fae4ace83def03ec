"""The head of a Ray cluster: global control service, dashboard and job server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi

from cluster import autoscaling, ray_leave, ray_node, ray_start
from cluster.inputs import join, lift
from cluster.ray_node import NodeAddition, NodeResources, RayPorts
from cluster.service import HealthCheck, Leave, Port, Runtime, Service
from cluster.storage import Storage

SERVICE = ray_node.HEAD

# A node whose machine or container is gone stops answering. By Ray's own defaults the head
# gives it up after a minute or more; with these, after 20 s: five checks of 3 s, one each second.
HEALTH_CHECKS = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "3000"}


@dataclass(frozen=True, kw_only=True)
class RayHeadArgs:
    """Arguments of a head.

    Attributes:
        runtime: where it runs.
        resources: what it offers to jobs.
        ports: the cluster's ports.
        token: bearer token of every Ray endpoint.
        serve_token: bearer token of every served model.
        storage: where jobs keep their results.
        additions: what other services add to it.
        autoscaling: files of its autoscaler by name, none without one.
    """

    runtime: Runtime
    resources: pulumi.Input[NodeResources]
    ports: RayPorts
    token: pulumi.Input[str]
    serve_token: pulumi.Input[str]
    storage: Storage
    additions: Sequence[NodeAddition]
    autoscaling: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)


class RayHead(pulumi.ComponentResource):
    """The head.

    Attributes:
        dashboard_url: URL of the dashboard and job server, for users.
        serve_url: URL of Ray Serve's proxy, for users.
    """

    dashboard_url: pulumi.Output[str]
    serve_url: pulumi.Output[str]

    def __init__(
        self, name: str, args: RayHeadArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:RayHead", name, None, opts)
        runtime, ports = args.runtime, args.ports
        on_workers = [addition for addition in args.additions if not addition.head_only]
        environment = {
            **ray_node.environment(SERVICE, runtime, ports, args.storage, on_workers),
            **head_environment(SERVICE, runtime, ports, args.additions),
            **ray_start.environment(runtime.file(SERVICE, ray_start.FILE)),
            **(autoscaling.head_environment() if args.autoscaling else {}),
        }
        path = runtime.file(SERVICE, autoscaling.CONFIG_FILE)
        own = runtime.node_address(0)
        known = isinstance(own, pulumi.Output) or own
        gcs = join(own, f":{ports.gcs}") if known else runtime.address(SERVICE, ports.gcs)
        service = Service(
            name=SERVICE,
            program="ray",
            arguments=[
                *head_flags(runtime, ports),
                *ray_node.common_flags(SERVICE, 0, runtime, args.resources, ports),
                *(autoscaling.flags(path) if args.autoscaling else []),
            ],
            environment=environment,
            files={
                ray_start.FILE: ray_start.text(),
                ray_leave.FILE: ray_leave.text(),
                **args.autoscaling,
            },
            leave=Leave(file=ray_leave.FILE, arguments=[gcs, ray_leave.EVERY], drains=False),
            secrets=ray_node.secret_files(
                args.token, args.storage, args.additions, serve_token=args.serve_token
            ),
            volumes=ray_node.volumes(args.additions),
            shared_memory_mib=lift(ray_node.shared_memory_mib, args.resources),
            memory_mib=lift(ray_node.head_memory_limit_mib, args.resources),
            stop_seconds=ray_node.STOP_SECONDS,
            ports=[
                Port(number=ports.dashboard, setting="dashboardPort", published=True),
                Port(number=ports.gcs, setting="gcsPort"),
                Port(number=ports.client, setting="rayClientPort"),
                # Nothing listens there before something is served, so health leaves it out.
                Port(number=ports.serve, setting="servePort", published=True),
                Port(number=ports.agent, setting="agentPort"),
                Port(number=ports.autoscaler_metrics, setting="autoscalerMetricsPort"),
                Port(number=ports.dashboard_metrics, setting="dashboardMetricsPort"),
            ],
            # A job needs both: the dashboard takes it, the head's agent starts its supervisor.
            health=[
                HealthCheck(port=ports.dashboard, path="/api/gcs_healthz"),
                HealthCheck(port=ports.agent, path="/api/local_raylet_healthz"),
            ],
        )
        runtime.place(service, pulumi.ResourceOptions(parent=self))
        self.dashboard_url = pulumi.Output.concat(
            "http://", runtime.public(SERVICE, ports.dashboard)
        )
        self.serve_url = pulumi.Output.concat("http://", runtime.public(SERVICE, ports.serve))
        self.register_outputs({"dashboard_url": self.dashboard_url, "serve_url": self.serve_url})


def head_flags(runtime: Runtime, ports: RayPorts) -> list[pulumi.Input[str]]:
    """Return the words after `ray` that start a head, without the flags that all nodes share."""
    return [
        "start",
        "--head",
        f"--port={ports.gcs}",
        join("--dashboard-host=", runtime.listen_address(SERVICE)),
        f"--dashboard-port={ports.dashboard}",
        # Ray cannot be told not to open it once its packages are installed.
        f"--ray-client-server-port={ports.client}",
    ]


def head_environment(
    service: str, runtime: Runtime, ports: RayPorts, additions: Sequence[NodeAddition]
) -> dict[str, pulumi.Input[str]]:
    """Return the variables that only a head has."""
    variables: dict[str, pulumi.Input[str]] = {
        "AUTOSCALER_METRIC_PORT": str(ports.autoscaler_metrics),
        "DASHBOARD_METRIC_PORT": str(ports.dashboard_metrics),
        **HEALTH_CHECKS,
    }
    for addition in additions:
        if addition.head_only:
            variables |= addition.environment(runtime, service)
    # Hides the tab whose charts need a Grafana.
    variables.setdefault("RAY_GRAFANA_HOST", "DISABLED")
    return variables
