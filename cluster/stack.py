"""A stack while it is declared: the values that its services read, and pass to one another."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.autoscaling import NodeProvider
from cluster.descriptor import Descriptor, Settings
from cluster.ray_node import NodeAddition, NodeResources
from cluster.service import Runtime
from cluster.storage import Storage


@dataclass(kw_only=True)
class Stack:
    """A stack; its services are declared in the order of `services`.

    Attributes:
        runtime: where services run.
        settings: of the stack.
        services: the services that run.
        head: what the head offers to jobs.
        workers: what each worker offers to jobs.
        gpus: indexes of the host's accelerators that each worker may use.
        token: bearer token of every Ray endpoint.
        serve_token: bearer token of every served model.
        node_provider: starts and stops workers of groups that grow; None if none does.
        on_demand: how many workers run only when they are needed.
        elastic: indexes of workers whose machines are launched and ended on request.
        not_launched: indexes of those among them whose machines do not exist now.
        storage: where jobs keep their results.
        expires_at: when rented machines end themselves, in ISO 8601; "" for never.
        idle_token: bearer token for asking whether the cluster is idle, "" without a watch.
        prometheus: URL of Prometheus for other services; None without one.
        additions: what services add to Ray nodes.
        outputs: what the services export, by name.
    """

    runtime: Runtime
    settings: Settings
    services: Sequence[Descriptor]
    head: NodeResources
    workers: Sequence[pulumi.Input[NodeResources]]
    gpus: Sequence[Sequence[int]]
    token: pulumi.Input[str]
    serve_token: pulumi.Input[str]
    storage: Storage
    node_provider: NodeProvider | None = None
    on_demand: int = 0
    elastic: Collection[int] = ()
    not_launched: Collection[int] = ()
    expires_at: pulumi.Input[str] = ""
    idle_token: pulumi.Input[str] = ""
    prometheus: pulumi.Input[str] | None = None
    additions: list[NodeAddition] = field(default_factory=list)
    outputs: dict[str, pulumi.Input[Any]] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """How many Ray nodes the stack always has; a missing one is an alert."""
        ray = [each for each in self.services if each.program == "ray"]
        declared = sum(len(each.services(len(self.workers))) for each in ray)
        return declared - self.on_demand

    def port(self, key: str) -> int:
        """Return the number of a port by its setting."""
        return self.settings.ports[key]
