"""Components under Pulumi's mocks, on a runtime that only records its services."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pytest

from cluster.ray_node import RayPorts
from cluster.service import Service, Volume

PORTS = RayPorts(
    dashboard=8265,
    gcs=6379,
    client=10001,
    serve=8000,
    agent=27365,
    autoscaler_metrics=27217,
    dashboard_metrics=27227,
)


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
def deploy(recorded: Any) -> Callable[[Callable[[], Any]], Any]:
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
