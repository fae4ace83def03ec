"""Prometheus: scrapes every Ray node, and the object store if it has figures.

Its interfaces for changing or ending it are off by default. It asks for no password: others reach
it only through the gateway, which does.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
import yaml

from cluster import alerting, gateway, ray_head
from cluster.descriptor import Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join, lift
from cluster.ray_node import NodeAddition
from cluster.service import HealthCheck, Port, Probe, Runtime, Service, Volume
from cluster.storage import Storage

SERVICE = "prometheus"
# renovate: datasource=docker depName=prom/prometheus
IMAGE = "prom/prometheus:v3.14.0"
PORT = "prometheusPort"
DATA = Volume(name="data", keep=True, mount="/prometheus")
RAY_TOKEN_FILE = "ray-token"  # noqa: S105 (a file's name)
STORE_TOKEN_FILE = "object-store-token"  # noqa: S105 (a file's name)
RULES_FILE = "rules.yml"
RETENTION = "15d"
SCRAPE_INTERVAL = "10s"  # Ray's nodes report every 10 s by default


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """Arguments of monitoring.

    Attributes:
        runtime: where it runs.
        port: TCP port of Prometheus.
        dashboard_port: TCP port of the Ray head's dashboard.
        ray_token: bearer token of every Ray endpoint.
        storage: the object store to scrape, if it has figures.
        alertmanager: host:port of Alertmanager, "" without one.
        nodes: how many Ray nodes the cluster has.
    """

    runtime: Runtime
    port: int
    dashboard_port: int
    ray_token: pulumi.Input[str]
    storage: Storage
    alertmanager: pulumi.Input[str]
    nodes: int


class Monitoring(pulumi.ComponentResource):
    """Prometheus.

    Attributes:
        url: its URL, for users.
        internal_url: its URL, for other services.
    """

    url: pulumi.Output[str]
    internal_url: pulumi.Input[str]

    def __init__(
        self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:Monitoring", name, None, opts)
        runtime = args.runtime
        secrets: dict[str, pulumi.Input[str]] = {
            RAY_TOKEN_FILE: pulumi.Output.secret(args.ray_token)
        }
        if args.storage.metrics:
            secrets[STORE_TOKEN_FILE] = pulumi.Output.secret(args.storage.metrics_token)
        runtime.place(
            Service(
                name=SERVICE,
                program="prometheus",
                arguments=[
                    f"--config.file={runtime.file(SERVICE, 'prometheus.yml')}",
                    f"--storage.tsdb.path={runtime.volume(SERVICE, DATA)}",
                    f"--storage.tsdb.retention.time={RETENTION}",
                    join("--web.listen-address=", runtime.listen_address(SERVICE), f":{args.port}"),
                ],
                files={
                    "prometheus.yml": lift(
                        lambda *known: yaml.safe_dump(configuration(args, *known)),
                        runtime.address(ray_head.SERVICE, args.dashboard_port),
                        args.storage.internal,
                        args.alertmanager,
                    ),
                    RULES_FILE: alerting.rules(args.nodes),
                },
                secrets=secrets,
                volumes=[DATA],
                ports=[Port(number=args.port, setting=PORT, published=True)],
                health=[HealthCheck(port=args.port, path="/-/ready")],
                probe=Probe.WGET,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.internal_url = join("http://", runtime.address(SERVICE, args.port))
        self.url = pulumi.Output.concat("http://", runtime.public(SERVICE, args.port))
        self.register_outputs({"url": self.url})


def configuration(
    args: MonitoringArgs, dashboard: str, store: str, alertmanager: str
) -> dict[str, Any]:
    """Return Prometheus' configuration; tokens are named by file, never written into it.

    Args:
        args: of the component.
        dashboard: host:port of the Ray dashboard.
        store: host:port of the object store, "" without one.
        alertmanager: host:port of Alertmanager, "" without one.
    """
    runtime = args.runtime
    jobs: list[dict[str, Any]] = [
        {
            "job_name": "ray",
            "http_sd_configs": [
                {
                    "url": f"http://{dashboard}/api/prometheus/sd",
                    "refresh_interval": SCRAPE_INTERVAL,
                    # Prometheus 2.42 leaves out the type in service discovery if it is not given.
                    "authorization": {
                        "type": "Bearer",
                        "credentials_file": runtime.file(SERVICE, RAY_TOKEN_FILE),
                    },
                }
            ],
        }
    ]
    jobs += [
        {
            "job_name": name,
            "metrics_path": path,
            "static_configs": [{"targets": [store]}],
            "authorization": {"credentials_file": runtime.file(SERVICE, STORE_TOKEN_FILE)},
        }
        for name, path in args.storage.metrics.items()
    ]
    found: dict[str, Any] = {
        "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
        "rule_files": [runtime.file(SERVICE, RULES_FILE)],
        "scrape_configs": jobs,
    }
    if alertmanager:
        targets = [{"static_configs": [{"targets": [alertmanager]}]}]
        found["alerting"] = {"alertmanagers": targets}
    return found


def declare(stack: Stack) -> None:
    """Declare Prometheus in a stack."""
    monitoring = Monitoring(
        "monitoring",
        MonitoringArgs(
            runtime=stack.runtime,
            port=stack.port(PORT),
            dashboard_port=stack.port("dashboardPort"),
            ray_token=stack.token,
            storage=stack.storage,
            alertmanager=alerting.address(stack),
            nodes=stack.nodes,
        ),
    )
    stack.prometheus = url = monitoring.internal_url
    stack.additions.append(
        NodeAddition(environment=lambda *_: {"RAY_PROMETHEUS_HOST": url}, head_only=True)
    )
    stack.outputs[ENDPOINT.url] = monitoring.url


# It asks for no password: the gateway does, and exports it.
ENDPOINT = Endpoint(
    title="Prometheus", url="prometheusUrl", login="prometheusPassword", user=gateway.USER
)
DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=declare,
    image=IMAGE,
    source=Source.MACHINE,
    ports=(PortSetting(key=PORT, default=9090, description="Prometheus", password=True),),
    limit=Limit(memory_mib=2048, processes=1024),
    endpoints=(ENDPOINT,),
)
