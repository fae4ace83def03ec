"""The runtime of a stack, and the services that it can run."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pulumi

from cluster import services
from cluster.autoscaling import NodeProvider
from cluster.descriptor import Descriptor, Source
from cluster.ray_node import NodeResources
from cluster.service import Runtime
from infra import places
from infra.config import Settings

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A runtime and its services.

    Attributes:
        runtime: the runtime.
        services: the ones that run.
        workers: the resources that each worker offers to jobs.
        gpus: indexes of the accelerators of each worker; () where nothing is assigned.
        python: major.minor of the nodes' Python.
        data: folder of data that outlives the stack, where the runtime has one.
        connections: how users reach what addresses refer to, by the output; {} for this machine.
        node_provider: starts and stops workers of groups that grow; None without such a group.
        requests_folder: folder on the head's machine with the files that name the requested
            machines of an elastic group; "" without such a group.
        on_demand: how many workers are there only when they are needed.
        elastic: indexes of workers whose machines are launched and ended on request.
        not_launched: indexes of those among them whose machines do not exist now.
        expires_at: when the machines end themselves, in ISO 8601; "" for never.
        idle_token: to ask whether the cluster is idle, "" without a watch.
    """

    runtime: Runtime
    services: Sequence[Descriptor]
    workers: Sequence[pulumi.Input[NodeResources]]
    gpus: Sequence[Sequence[int]] = ()
    python: str = PYTHON
    data: str = ""
    connections: Mapping[str, Mapping[str, pulumi.Input[Any]]] = field(default_factory=dict)
    node_provider: NodeProvider | None = None
    requests_folder: str = ""
    on_demand: int = 0
    elastic: Collection[int] = ()
    not_launched: Collection[int] = ()
    expires_at: pulumi.Input[str] = ""
    idle_token: pulumi.Input[str] = ""


class Place(Protocol):
    """The module `place` of a place; `infra/places.py` lists all of them."""

    def is_wanted(self, settings: Settings, stack: str) -> bool:
        """Return whether a stack is to be here, if no earlier place of the list takes it."""

    def declare(self, settings: Settings, stack: str) -> Target:
        """Declare the runtime; a RunError says what it lacks."""


def find(settings: Settings, stack: str) -> Target:
    """Declare the runtime that the settings of a stack ask for.

    Raises:
        pulumi.RunError: what it needs is missing.
    """
    found: Iterator[Place] = places.modules("place")
    return next(place for place in found if place.is_wanted(settings, stack)).declare(
        settings, stack
    )


def services_for(settings: Settings, store: str, *sources: Source) -> list[Descriptor]:
    """Return the services that the settings ask for.

    Args:
        settings: of the stack.
        store: name of its object store, "" for a folder.
        sources: of programs that can run; all by default.
    """
    return [
        service
        for service in services.ALL
        if service.wanted(settings)
        and (not sources or service.source in sources)
        and (service.program == store or service.program not in services.STORES)
    ]


def warn_of_missing(settings: Settings, running: Sequence[Descriptor], remedy: str) -> None:
    """Name programs that a setting asks for and the machine lacks.

    Args:
        settings: of the stack.
        running: services that run.
        remedy: how the machine gets such a program.
    """
    for service in services.ALL:
        asked = service.source is Source.MACHINE and service.settings and service.wanted(settings)
        if asked and service not in running:
            keys = ", ".join(service.settings)
            pulumi.log.warn(
                f"{keys} is set, and no {' or '.join(service.names)} is on the machine's PATH: "
                f"{service.program} does not run. {remedy}, then run `up` again; or remove {keys}"
            )
