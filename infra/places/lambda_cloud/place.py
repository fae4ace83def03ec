"""Machines rented from Lambda Cloud as a place of a stack."""

from typing import cast

from cluster.descriptor import Stack
from infra.places.lambda_cloud.settings import LambdaCloud
from infra.settings.config import Settings


def is_wanted(settings: Settings, _stack: str) -> bool:
    """Return whether the stack rents instances."""
    return isinstance(settings.fleet, LambdaCloud)


def declare(settings: Settings, _stack: str) -> Stack:
    """Declare the runtime; see `infra/machines/target.py`."""
    # Not at the top: other stacks would pay for imports that they do not need.
    from infra.machines import target  # noqa: PLC0415
    from infra.places.lambda_cloud.fleet import Rental  # noqa: PLC0415

    cloud = cast("LambdaCloud", settings.fleet)
    return target.declare(settings, lambda args: lambda: Rental("lambda", cloud, args).declared)
