"""Components under Pulumi's mocks, on a runtime that only records its services."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from cluster import job_processes, ray_node
from cluster.descriptor import Stack
from cluster.ray_node import NodeResources
from cluster.service import Service, Volume
from cluster.storage import Storage

Deploy = Callable[[Callable[[], Any]], Any]
PORTS = {
    "dashboardPort": 8265,
    "gcsPort": 6379,
    "rayClientPort": 10001,
    "servePort": 8000,
    "agentPort": 27365,
    "autoscalerMetricsPort": 27217,
    "dashboardMetricsPort": 27227,
    "alertmanagerPort": 9093,
    "grafanaPort": 3000,
    "objectStorePort": 9000,
    "objectStoreConsolePort": 9001,
    "prometheusPort": 9090,
    "replicaPort": 8766,
    "trackingPort": 5000,
}
HEAD = NodeResources(cpus=0, gpus=0, memory_mib=1024, object_store_mib=128)


def stack(
    runtime: Any,
    storage: Storage | None = None,
    of_services: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Stack:
    """Return a stack without services but Ray.

    Args:
        runtime: where they run.
        storage: where jobs keep their results; a folder by default.
        of_services: values of the settings that services have.
        **changes: other arguments of the stack.
    """
    known = {
        ray_node.JOB_START: ray_node.JOB_START_SECONDS,
        job_processes.SETTING: job_processes.JobProcesses(),
        **(of_services or {}),
    }
    settings: Any = SimpleNamespace(
        head=HEAD,
        ports=PORTS,
        of_services=known,
        allowed_cidrs=("192.0.2.0/24",),
        publish_address="192.0.2.7",
    )
    values: dict[str, Any] = {
        "services": [],
        "python": "3.11",
        "workers": [],
        "data": "/srv",
        "token": "canary",
        "serve_token": "canary-serve",
    }
    made = Stack(runtime=runtime, settings=settings, **values | changes)
    made.storage = storage or made.storage
    return made


@dataclass
class RecordingRuntime:
    """A runtime with addresses of its own, so that a component that guesses them is found out."""

    via: None = None
    node_addresses: str = ""
    placed: dict[str, Service] = field(default_factory=dict)

    def listen_address(self, service: str) -> str:
        return "0.0.0.0"

    def node_address(self, index: int) -> str:
        return f"{self.node_addresses}{index}" if self.node_addresses else ""

    def address(self, service: str, port: int) -> str:
        return f"{service}.internal:{port}"

    def published(self, service: str, port: int) -> str:
        return f"loopback.example:{port}"

    def public(self, service: str, port: int) -> str:
        return f"host.example:{port}"

    def file(self, service: str, name: str) -> str:
        return f"/run/secrets/{name}"

    def volume(self, service: str, volume: Volume) -> str:
        return f"/volumes/{volume.name}"

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        self.placed[service.name] = service
        return pulumi.ComponentResource("test:runtime:Placed", service.name, None, opts)


@pytest.fixture
def runtime() -> RecordingRuntime:
    return RecordingRuntime()


@pytest.fixture
def deploy(recorded) -> Callable[[Callable[[], Any]], Any]:
    """Run a program under the mocks; its result is returned with all outputs resolved."""
    assert recorded.created == []

    def run(program: Callable[[], Any]) -> Any:
        results: list[Any] = []

        @pulumi.runtime.test
        def wrapped() -> pulumi.Output[None]:
            return pulumi.Output.from_input(program()).apply(results.append)

        wrapped()
        return results[0]

    return run
