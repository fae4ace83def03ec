"""A stack while it is declared: where it runs, and the values that its services share."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.autoscaling import NodeProvider
from cluster.descriptor import Descriptor, Settings
from cluster.ray_node import NodeAddition, NodeResources, RayPorts
from cluster.secret import TOKEN_BYTES, Secret
from cluster.service import Runtime
from cluster.storage import Storage


@dataclass(kw_only=True)
class Stack:
    """A stack; its services are declared in the order of `services`.

    Attributes:
        runtime: where services run.
        settings: of the stack.
        services: the services that run.
        python: major.minor of the nodes' Python; by default that of this one.
        workers: what each worker offers to jobs.
        gpus: indexes of the host's accelerators that each worker may use; () for none.
        data: folder of data that outlives the stack, where the runtime has one.
        connections: how users reach what addresses refer to, by the output; {} for this machine.
        token: bearer token of every Ray endpoint.
        serve_token: bearer token of every served model; users who may ask a model must not be able
            to run code on the cluster.
        storage: where jobs keep their results; a folder unless an object store is declared.
        node_provider: starts and stops workers of groups that grow; None if none does.
        requests_folder: folder on the head's machine with the files that name the requested
            machines of an elastic group; "" without such a group.
        on_demand: how many workers run only when they are needed.
        elastic: indexes of workers whose machines are launched and ended on request.
        not_launched: indexes of those among them whose machines do not exist now.
        expires_at: when rented machines end themselves, in ISO 8601; "" for never.
        idle_token: bearer token for asking whether the cluster is idle, "" without a watch.
        prometheus: URL of Prometheus for other services; None without one.
        additions: what services add to Ray nodes.
        outputs: what the services export, by name.
    """

    runtime: Runtime
    settings: Settings
    services: Sequence[Descriptor]
    workers: Sequence[pulumi.Input[NodeResources]]
    gpus: Sequence[Sequence[int]] = ()
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    data: str = ""
    connections: Mapping[str, Mapping[str, pulumi.Input[Any]]] = field(default_factory=dict)
    token: pulumi.Input[str] = field(default_factory=lambda: Secret("ray-token", TOKEN_BYTES).value)
    serve_token: pulumi.Input[str] = field(
        default_factory=lambda: Secret("serve-token", TOKEN_BYTES).value
    )
    storage: Storage = field(init=False)
    node_provider: NodeProvider | None = None
    requests_folder: str = ""
    on_demand: int = 0
    elastic: Collection[int] = ()
    not_launched: Collection[int] = ()
    expires_at: pulumi.Input[str] = ""
    idle_token: pulumi.Input[str] = ""
    prometheus: pulumi.Input[str] | None = None
    additions: list[NodeAddition] = field(default_factory=list)
    outputs: dict[str, pulumi.Input[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gpus and len(self.gpus) != len(self.workers):
            raise ValueError(f"{len(self.workers)} workers, but GPUs for {len(self.gpus)}")
        if not self.workers and not self.head.cpus:
            raise ValueError("a cluster without workers needs a head with at least 1 CPU")
        self.storage = Storage(url=f"file://{self.data}/storage")

    @property
    def head(self) -> NodeResources:
        """What the head offers to jobs."""
        return self.settings.head

    @property
    def ray_ports(self) -> RayPorts:
        """The ports of its Ray cluster."""
        return RayPorts.of(self.settings.ports)

    @property
    def on_workers(self) -> list[NodeAddition]:
        """What services add to the workers too."""
        return [addition for addition in self.additions if not addition.head_only]

    @property
    def nodes(self) -> int:
        """How many Ray nodes the stack always has; a missing one is an alert."""
        ray = [each for each in self.services if each.program == "ray"]
        declared = sum(len(each.services(len(self.workers))) for each in ray)
        return declared - self.on_demand

    def port(self, key: str) -> int:
        """Return the number of a port by its setting."""
        return self.settings.ports[key]
