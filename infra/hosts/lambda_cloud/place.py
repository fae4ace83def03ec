"""Machines rented from Lambda Cloud as a place of a stack."""

from infra.config import Settings
from infra.hosts.lambda_cloud.settings import LambdaCloud
from infra.target import Target


def is_wanted(settings: Settings, _stack: str) -> bool:
    """Return whether the stack rents machines here."""
    return isinstance(settings.fleet, LambdaCloud)


def declare(settings: Settings, _stack: str) -> Target:
    """Declare the runtime; see `infra/hosts/target.py`."""
    # Not at the top: other stacks would pay for imports that they do not need.
    from infra.hosts import target  # noqa: PLC0415

    return target.hosts(settings)
