"""Existing machines as a place of a stack."""

from functools import partial
from typing import cast

from cluster.descriptor import Stack
from infra.places.ssh.settings import Hosts
from infra.settings.config import Settings


def is_wanted(settings: Settings, _stack: str) -> bool:
    """Return whether the stack names hosts."""
    return isinstance(settings.fleet, Hosts)


def declare(settings: Settings, _stack: str) -> Stack:
    """Declare the runtime; see `infra/machines/target.py`."""
    # Not at the top: other stacks would pay for imports that they do not need.
    from infra.machines import target  # noqa: PLC0415
    from infra.places.ssh.fleet import inspect  # noqa: PLC0415

    return target.declare(settings, partial(inspect, cast("Hosts", settings.fleet).hosts))
