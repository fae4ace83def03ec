"""Prometheus: scrapes every Ray node, and the object store where that has figures.

Its interfaces that change or end it are off, which is its default. It asks for no password: others
reach it only through the gateway, which does.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
import yaml

from cluster import ray_head
from cluster.inputs import join, lift
from cluster.object_store import Storage
from cluster.service import HealthCheck, Port, Runtime, Service, Volume

SERVICE = "prometheus"
DATA = Volume(name="data", keep=True)
RAY_TOKEN_FILE = "ray-token"  # noqa: S105 (a file's name)
STORE_TOKEN_FILE = "object-store-token"  # noqa: S105 (a file's name)
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
    """

    runtime: Runtime
    port: int
    dashboard_port: int
    ray_token: pulumi.Input[str]
    storage: Storage


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
                        lambda ray, store: yaml.safe_dump(scrape_config(args, ray, store)),
                        runtime.address(ray_head.SERVICE, args.dashboard_port),
                        args.storage.internal,
                    )
                },
                secrets=secrets,
                volumes=[DATA],
                ports=[Port(number=args.port, setting="prometheusPort", published=True)],
                health=[HealthCheck(port=args.port, path="/-/ready")],
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.internal_url = join("http://", runtime.address(SERVICE, args.port))
        self.url = pulumi.Output.concat("http://", runtime.public(SERVICE, args.port))
        self.register_outputs({"url": self.url})


def scrape_config(args: MonitoringArgs, dashboard: str, store: str) -> dict[str, Any]:
    """Return Prometheus' configuration; tokens are named by file, never written into it.

    Args:
        args: of the component.
        dashboard: host:port of the Ray dashboard.
        store: host:port of the object store, "" without one.
    """
    runtime = args.runtime
    jobs: list[dict[str, Any]] = [
        {
            "job_name": "ray",
            "http_sd_configs": [
                {
                    "url": f"http://{dashboard}/api/prometheus/sd",
                    "refresh_interval": SCRAPE_INTERVAL,
                    # Prometheus 2.42 leaves out the type in service discovery if it is not said.
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
    return {"global": {"scrape_interval": SCRAPE_INTERVAL}, "scrape_configs": jobs}
