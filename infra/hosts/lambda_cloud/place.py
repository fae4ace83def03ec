"""Machines rented from Lambda Cloud as a place of a stack."""

from functools import partial
from typing import cast

from cluster.descriptor import Stack
from infra.config import Settings
from infra.hosts.lambda_cloud.settings import LambdaCloud


def is_wanted(settings: Settings, _stack: str) -> bool:
    """Return whether the stack rents instances."""
    return isinstance(settings.fleet, LambdaCloud)


def declare(settings: Settings, _stack: str) -> Stack:
    """Declare the runtime; see `infra/hosts/target.py`."""
    # Not at the top: other stacks would pay for imports that they do not need.
    from infra.hosts import target  # noqa: PLC0415
    from infra.hosts.lambda_cloud import fleet  # noqa: PLC0415

    return target.hosts(settings, partial(fleet.declare, cast("LambdaCloud", settings.fleet)))
