"""Alertmanager: sends the alerts that Prometheus raises to a webhook.

The rules are Prometheus's, which shows them even without Alertmanager. Alertmanager asks for no
password: others reach it only through the gateway, which does.
"""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import pulumi
import yaml

from cluster import gateway
from cluster.descriptor import Component, Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join
from cluster.model import matching, setting
from cluster.service import HealthCheck, Port, Probe, Service, Volume
from node import idle_watch

SERVICE = "alertmanager"
# renovate: datasource=docker depName=prom/alertmanager
IMAGE = "prom/alertmanager:v0.34.2"
PORT = "alertmanagerPort"
WEBHOOK = "alertWebhookUrl"
DATA = Volume(name="data", keep=True, mount="/alertmanager")  # silences, and the log of sent alerts
CONFIG_FILE = "alertmanager.yml"  # a secret: anyone with a webhook's URL can post to it
WARN_SECONDS = 30 * 60  # before the stack ends itself
REPEAT = "4h"  # while nothing changes
LOST = "ray_node_manager_unexpected_worker_failure_total"


class Alerting(Component):
    """Alertmanager."""

    def declare(self, stack: Stack) -> None:
        runtime, port = stack.runtime, stack.port(PORT)
        runtime.place(
            Service(
                name=SERVICE,
                program=SERVICE,
                arguments=[
                    f"--config.file={runtime.file(SERVICE, CONFIG_FILE)}",
                    f"--storage.path={runtime.volume(SERVICE, DATA)}",
                    join("--web.listen-address=", runtime.listen_address(SERVICE), f":{port}"),
                    # Empty: it looks for no other Alertmanagers, and opens no port for them.
                    "--cluster.listen-address=",
                ],
                secrets={
                    CONFIG_FILE: pulumi.Output.secret(
                        configuration(stack.settings.of_services[WEBHOOK])
                    )
                },
                volumes=[DATA],
                ports=[Port(number=port, setting=PORT, published=True)],
                health=[HealthCheck(port=port, path="/-/ready")],
                probe=Probe.WGET,
            ),
            self.child,
        )
        self.export(stack, ENDPOINT, runtime.public(SERVICE, port))


def configuration(webhook: str) -> str:
    """Return Alertmanager's configuration: all alerts go to one webhook, also when they end."""
    return yaml.safe_dump(
        {
            "route": {
                "receiver": "webhook",
                "group_by": ["alertname"],
                "group_wait": "10s",
                "repeat_interval": REPEAT,
            },
            "receivers": [
                {
                    "name": "webhook",
                    "webhook_configs": [{"url": webhook, "send_resolved": True}],
                }
            ],
        }
    )


def rules(nodes: int, expires_at: str) -> str:
    """Return Prometheus's rules for a number of Ray nodes, its head included.

    `expires_at`, when the stack ends itself, is in ISO 8601; "" for never.
    """
    alive = "count(ray_node_cpu_utilization)"
    ending = []
    if expires_at:
        end = datetime.fromisoformat(expires_at)
        ending.append(
            _rule(
                "StackEndsSoon",
                f"vector(time()) > {end.timestamp() - WARN_SECONDS:.0f}",
                "0s",
                f"The stack ends itself at {end.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
                "save results with `train pull RUN`, or set a later end and run `pulumi up`",
            )
        )
    return yaml.safe_dump(
        {
            "groups": [
                {
                    "name": "trainyard",
                    "rules": [
                        _rule(
                            "RayHeadDown",
                            f"absent({alive})",
                            "1m",
                            "No Ray node reports: the head does not answer",
                            "run `pulumi refresh`, then `pulumi up`",
                        ),
                        _rule(
                            "RayNodeDown",
                            f"{alive} < {nodes}",
                            "1m",
                            f"{{{{ $value }}}} of {nodes} Ray nodes are alive",
                            "run `pulumi refresh`, then `pulumi up`",
                        ),
                        _rule(
                            "RayWorkerProcessLost",
                            # Not increase(), which misses the first failure: it creates the figure.
                            f"{LOST} - ({LOST} offset 10m or {LOST} * 0) > 0",
                            "0s",
                            "Processes of jobs ended unexpectedly on {{ $labels.instance }}",
                            "read `train logs JOB`; the node may lack memory",
                        ),
                        _rule(
                            "DiskAlmostFull",
                            "ray_node_disk_free / (ray_node_disk_free + ray_node_disk_usage) < 0.1",
                            "5m",
                            "{{ $labels.instance }} has less than a tenth of its disk free",
                            "remove what is not needed: checkpoints need room",
                        ),
                        _rule(
                            "MemoryAlmostFull",
                            "ray_node_mem_used / ray_node_mem_total > 0.95",
                            "5m",
                            "{{ $labels.instance }} uses more than 95 % of its memory",
                            "use a smaller batch or fewer processes for data loading",
                        ),
                        _rule(
                            "GpusIdle",
                            "max(max_over_time(ray_node_gpus_utilization[1h])) < 5",
                            "1h",
                            "No GPU has done anything for an hour",
                            "end rented machines that you do not need: `pulumi destroy`",
                        ),
                        _rule(
                            "StackEndsIdle",
                            f"{idle_watch.METRIC} < {idle_watch.WARN_SECONDS:.0f}",
                            "0s",
                            "Nobody uses the stack: it ends itself within "
                            f"{idle_watch.WARN_SECONDS / 60:.0f} minutes",
                            "put it off with `train keep 2h`, or leave it",
                        ),
                        *ending,
                    ],
                }
            ]
        },
        sort_keys=False,
    )


def _rule(name: str, expression: str, lasting: str, what: str, action: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": lasting,
        "annotations": {"summary": what, "action": action},
    }


ENDPOINT = Endpoint(
    title="Alertmanager",
    url="alertmanagerUrl",
    login="alertmanagerPassword",
    user=gateway.USER,
)
DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=partial(Alerting, "alerting"),
    image=IMAGE,
    source=Source.MACHINE,
    commands=(SERVICE, "prometheus-alertmanager"),  # the latter is Debian's name
    ports=(PortSetting(PORT, 9093, "Alertmanager", password=True),),
    limit=Limit(memory_mib=512, processes=512),
    settings={
        WEBHOOK: (
            Annotated[
                str,
                matching(
                    r"(https?://\S+)?",
                    "must be an http or https URL",
                    f"set it with `train config set --secret {WEBHOOK}`, or remove it",
                    secret=True,
                ),
            ],
            setting(
                "",
                "Webhook for alerts, as a secret; starts Alertmanager",
                see="monitoring.md#alerts",
                secret=True,
            ),
        )
    },
    wanted=lambda settings: bool(settings.of_services[WEBHOOK]),
    endpoints=(ENDPOINT,),
)
