"""Where a stack is: finds its place, which declares the runtime and returns the stack."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pulumi

from cluster import services
from cluster.descriptor import Descriptor, Source, Stack
from infra import places
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
    made.volumes = [each.volume for each in settings.volumes]
    if reserved := settings.reservation:
        made.reserved_from, made.expires_at = reserved.start.isoformat(), reserved.end.isoformat()
    return made


def services_for(settings: Settings, store: str, *sources: Source) -> list[Descriptor]:
    """Return the services that the settings ask for, of some sources of programs (default: all).

    `store` is the name of the object store, "" for a folder.
    """
    return [
        service
        for service in services.ALL
        if service.wanted(settings)
        and (not sources or service.source in sources)
        and (service.program == store or service.program not in services.STORES)
    ]


def warn_of_missing(
    settings: Settings, running: Sequence[Descriptor], remedies: Mapping[Source, str]
) -> None:
    """Name programs that a setting asks for and the machine lacks, each with its remedy."""
    for service in services.ALL:
        remedy = remedies.get(service.source)
        asked = service.settings and service.wanted(settings)
        if remedy and asked and service not in running:
            keys = ", ".join(service.settings)
            pulumi.log.warn(
                f"{keys} is set, and the machine has no {' or '.join(service.names)}: "
                f"{service.program} does not run. {remedy}, then run `up` again; or remove {keys}"
            )
