"""Prometheus: scrapes every Ray node, and the object store if it has figures.

Its interfaces for changing or ending it are off by default. It asks for no password: others reach
it only through the gateway, which does.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pulumi
import yaml

from cluster import alerting, gateway, idle_end, ray_node
from cluster.descriptor import Component, Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join, lift
from cluster.ray_node import NodeAddition
from cluster.service import HealthCheck, Port, Probe, Runtime, Service, Volume

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


class Monitoring(Component):
    """Prometheus."""

    def declare(self, stack: Stack) -> None:
        runtime, storage, port = stack.runtime, stack.storage, stack.port(PORT)
        secrets: dict[str, pulumi.Input[str]] = {RAY_TOKEN_FILE: pulumi.Output.secret(stack.token)}
        if storage.metrics:
            secrets[STORE_TOKEN_FILE] = pulumi.Output.secret(storage.metrics_token)
        runtime.place(
            Service(
                name=SERVICE,
                program="prometheus",
                arguments=[
                    f"--config.file={runtime.file(SERVICE, 'prometheus.yml')}",
                    f"--storage.tsdb.path={runtime.volume(SERVICE, DATA)}",
                    f"--storage.tsdb.retention.time={RETENTION}",
                    join("--web.listen-address=", runtime.listen_address(SERVICE), f":{port}"),
                ],
                files={
                    "prometheus.yml": lift(
                        lambda *known: yaml.safe_dump(
                            configuration(runtime, storage.metrics, *known)
                        ),
                        runtime.address(ray_node.HEAD, stack.port("dashboardPort")),
                        storage.internal,
                        stack.address(alerting.SERVICE, alerting.PORT),
                        stack.address(idle_end.SERVICE, idle_end.PORT),
                    ),
                    RULES_FILE: lift(partial(alerting.rules, stack.nodes), stack.expires_at),
                },
                secrets=secrets,
                volumes=[DATA],
                ports=[Port(number=port, setting=PORT, published=True)],
                health=[HealthCheck(port=port, path="/-/ready")],
                probe=Probe.WGET,
            ),
            self.child,
        )
        stack.prometheus = inside = join("http://", runtime.address(SERVICE, port))
        stack.additions.append(
            NodeAddition(environment=lambda *_: {"RAY_PROMETHEUS_HOST": inside}, head_only=True)
        )
        self.export(stack, ENDPOINT, runtime.public(SERVICE, port))


def configuration(
    runtime: Runtime,
    metrics: Mapping[str, str],
    dashboard: str,
    store: str,
    alertmanager: str,
    idle: str,
) -> dict[str, Any]:
    """Return Prometheus' configuration; tokens are named by file, never written into it.

    `metrics` are paths of the store's figures by the name of their job. Dashboard, store,
    Alertmanager and the idle watch are host:port, "" without one.
    """
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
        for name, path in metrics.items()
    ]
    if idle:
        jobs.append({"job_name": idle_end.SERVICE, "static_configs": [{"targets": [idle]}]})
    found: dict[str, Any] = {
        "global": {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL},
        "rule_files": [runtime.file(SERVICE, RULES_FILE)],
        "scrape_configs": jobs,
    }
    if alertmanager:
        targets = [{"static_configs": [{"targets": [alertmanager]}]}]
        found["alerting"] = {"alertmanagers": targets}
    return found


# It asks for no password: the gateway does, and exports it.
ENDPOINT = Endpoint(
    title="Prometheus", url="prometheusUrl", login="prometheusPassword", user=gateway.USER
)
DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=partial(Monitoring, "monitoring"),
    image=IMAGE,
    source=Source.MACHINE,
    ports=(PortSetting(PORT, 9090, "Prometheus", password=True),),
    limit=Limit(memory_mib=2048, processes=1024),
    endpoints=(ENDPOINT,),
)
