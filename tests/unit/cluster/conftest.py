"""Components under Pulumi's mocks, on a runtime that only records what is placed on it."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks, settings

from cluster.service import Service, Volume


class RecordingMocks(mocks.Mocks):
    """Answers every resource with its inputs, and keeps them."""

    def __init__(self) -> None:
        self.created: list[mocks.MockResourceArgs] = []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.created.append(args)
        outputs = dict(args.inputs)
        if args.typ.endswith(":Secret"):
            outputs["value"] = f"value of {args.name}"
        return f"{args.name}-id", outputs

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        raise NotImplementedError(args.token)

    def of_type(self, suffix: str) -> dict[str, mocks.MockResourceArgs]:
        return {args.name: args for args in self.created if args.typ.endswith(suffix)}


@dataclass
class RecordingRuntime:
    """A runtime with addresses of its own, so that a component that guesses them is found out."""

    bind_address: str = "0.0.0.0"
    node_addresses: str = ""
    placed: dict[str, Service] = field(default_factory=dict)

    def node_address(self, index: int) -> str:
        return f"{self.node_addresses}{index}" if self.node_addresses else ""

    def address(self, service: str, port: int) -> str:
        return f"{service}.internal:{port}"

    def published(self, service: str, port: int) -> str:
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
def recorded() -> Iterator[RecordingMocks]:
    recording = RecordingMocks()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    mocks.set_mocks(recording, project="trainyard", stack="test")
    yield recording
    settings.reset_options(project="project", stack="stack")
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def deploy(recorded: RecordingMocks) -> Callable[[Callable[[], Any]], Any]:
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
