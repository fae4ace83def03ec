"""Where a stack is: finds its place, which declares the runtime and returns the stack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pulumi

from cluster import services
from cluster.descriptor import Descriptor, Source, Stack
from infra import places
from infra.machines.fleet import FleetArgs, IdleWatch
from infra.places.args import RuntimeArgs
from infra.settings.config import Settings


class Place(Protocol):
    """The module `place` of a place; `infra/places/__init__.py` lists all of them."""

    def is_wanted(self, settings: Settings, stack: str) -> bool:
        """Return whether a stack is to be here, if no earlier place of the list takes it."""

    def declare(self, settings: Settings, stack: str) -> Stack:
        """Declare the runtime; a RunError says what it lacks."""


def find(settings: Settings, stack: str) -> Stack:
    """Declare the runtime that the settings of a stack ask for.

    Raises:
        pulumi.RunError: what it needs is missing.
    """
    found: Iterator[Place] = places.modules("place")
    made = next(place for place in found if place.is_wanted(settings, stack)).declare(
        settings, stack
    )
    if reserved := settings.reservation:
        made.reserved_from, made.expires_at = reserved.start.isoformat(), reserved.end.isoformat()
    return made


def services_for(settings: Settings, store: str, *sources: Source) -> list[Descriptor]:
    """Return the services that the settings ask for.

    Args:
        settings: those of the stack.
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


def runtime_args(settings: Settings, running: Sequence[Descriptor], store: str) -> dict[str, Any]:
    """Return the arguments of a runtime on machines, see RuntimeArgs.

    Args:
        settings: those of the stack.
        running: services that run.
        store: name of its object store, "" for a folder.
    """
    return vars(
        RuntimeArgs(
            ports=settings.opened(running),
            store=store,
            keep_data=settings.keep_data,
            start_timeout=settings.start_timeout_seconds,
            drain=settings.drain_seconds,
            end=settings.reservation.end.isoformat() if settings.reservation else "",
        )
    )


def fleet_args(
    settings: Settings,
    *,
    containers: bool = False,
    requested: Sequence[int] = (),
    idle: IdleWatch | None = None,
) -> FleetArgs:
    """Return a stack's requirements for other machines, see FleetArgs."""
    return FleetArgs(
        base=f".trainyard/{pulumi.get_project()}-{pulumi.get_stack()}",
        python_environment=settings.python_environment,
        containers=containers,
        worker=settings.worker,
        groups=settings.groups,
        requested=requested,
        key_file=settings.ssh_key_file,
        allowed_cidrs=settings.allowed_cidrs,
        keep_data=settings.keep_data,
        start_ray=settings.start_ray,
        owner=settings.owner,
        idle=idle,
        reservation=settings.reservation,
    )


def warn_of_missing(settings: Settings, running: Sequence[Descriptor], remedy: str) -> None:
    """Name programs that a setting asks for and the machine lacks.

    Args:
        settings: those of the stack.
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
