"""The head of a Ray cluster: global control service, dashboard and job server."""

from collections.abc import Mapping

import pulumi

from cluster import autoscaling, ray_leave, ray_node, ray_start, ray_worker
from cluster.descriptor import Stack
from cluster.inputs import join
from cluster.service import HealthCheck, Leave, Port, Runtime, Service

SERVICE = ray_node.HEAD
STEADY_SECONDS = 5  # a head that lacks a port ends some seconds after its dashboard answers
JOB_START = "jobStartTimeoutSeconds"
JOB_START_SECONDS, JOB_START_VARIABLE = 900, "RAY_JOB_START_TIMEOUT_SECONDS"

# A node whose machine or container is gone stops answering. By Ray's own defaults the head
# gives it up after a minute or more; with these, after 20 s: five checks of 3 s, one each second.
HEALTH_CHECKS = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "3000"}


def head(stack: Stack) -> Service:
    """Return the head of a stack, whose other services have added to its nodes."""
    runtime, ports, node = stack.runtime, stack.settings.ports, stack.head
    autoscaler: Mapping[str, pulumi.Input[str]] = {}
    secrets = ray_node.secret_files(
        stack.token, stack.storage, stack.additions, serve_token=stack.serve_token
    )
    if provider := stack.node_provider:
        workers = {ray_worker.service(index): each for index, each in enumerate(stack.workers)}
        autoscaler = autoscaling.files(node, workers, provider)
        secrets |= provider.secrets
    own = runtime.node_address(0)
    known = isinstance(own, pulumi.Output) or own
    gcs = join(own, f":{ports['gcsPort']}") if known else runtime.address(SERVICE, ports["gcsPort"])
    config = runtime.file(SERVICE, autoscaling.CONFIG_FILE)
    return Service(
        name=SERVICE,
        program="ray",
        arguments=[
            *head_flags(runtime, ports),
            *ray_node.common_flags(SERVICE, 0, runtime, node, ports),
            *(autoscaling.flags(config) if autoscaler else []),
        ],
        environment={
            **ray_node.environment(SERVICE, runtime, ports, stack.storage, stack.on_workers),
            **head_environment(SERVICE, stack),
            **ray_start.environment(runtime.file(SERVICE, ray_start.FILE)),
            **(autoscaling.head_environment() if autoscaler else {}),
        },
        files={
            ray_start.FILE: ray_start.text(),
            ray_leave.FILE: ray_leave.text(),
            **autoscaler,
        },
        leave=Leave(file=ray_leave.FILE, arguments=[gcs, ray_leave.EVERY], drains=False),
        secrets=secrets,
        volumes=ray_node.volumes(stack.additions),
        shared_memory_mib=ray_node.shared_memory_mib(node),
        memory_mib=ray_node.head_memory_limit_mib(node),
        stop_seconds=ray_node.STOP_SECONDS,
        ports=[
            Port(number=ports["dashboardPort"], setting="dashboardPort", published=True),
            Port(number=ports["gcsPort"], setting="gcsPort"),
            Port(number=ports["rayClientPort"], setting="rayClientPort"),
            # Nothing listens there before something is served, so health leaves it out.
            Port(number=ports["servePort"], setting="servePort", published=True),
            Port(number=ports["agentPort"], setting="agentPort"),
            Port(number=ports["autoscalerMetricsPort"], setting="autoscalerMetricsPort"),
            Port(number=ports["dashboardMetricsPort"], setting="dashboardMetricsPort"),
        ],
        # A job needs both: the dashboard takes it, the head's agent starts its supervisor.
        health=[
            HealthCheck(port=ports["dashboardPort"], path="/api/gcs_healthz"),
            HealthCheck(port=ports["agentPort"], path="/api/local_raylet_healthz"),
        ],
        listens=[ports["gcsPort"], ports["rayClientPort"]],
        steady_seconds=STEADY_SECONDS,
    )


def head_flags(runtime: Runtime, ports: Mapping[str, int]) -> list[pulumi.Input[str]]:
    """Return the words after `ray` that start a head, without the flags that all nodes share."""
    return [
        "start",
        "--head",
        f"--port={ports['gcsPort']}",
        join("--dashboard-host=", runtime.listen_address(SERVICE)),
        f"--dashboard-port={ports['dashboardPort']}",
        # Ray cannot be told not to open it once its packages are installed.
        f"--ray-client-server-port={ports['rayClientPort']}",
    ]


def head_environment(service: str, stack: Stack) -> dict[str, pulumi.Input[str]]:
    """Return the variables that only a head has."""
    runtime, ports = stack.runtime, stack.settings.ports
    start = stack.settings.of_services[JOB_START]
    variables: dict[str, pulumi.Input[str]] = {
        "AUTOSCALER_METRIC_PORT": str(ports["autoscalerMetricsPort"]),
        "DASHBOARD_METRIC_PORT": str(ports["dashboardMetricsPort"]),
        **HEALTH_CHECKS,
        # Ray's default is left out: a head is not restarted for it.
        **({} if start == JOB_START_SECONDS else {JOB_START_VARIABLE: str(start or "inf")}),
    }
    for addition in stack.additions:
        if addition.head_only:
            variables |= addition.environment(runtime, service)
    # Hides the tab whose charts need a Grafana.
    variables.setdefault("RAY_GRAFANA_HOST", "DISABLED")
    return variables
