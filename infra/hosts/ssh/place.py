"""Existing machines, reached by SSH, as a place of a stack."""

from infra.config import Settings
from infra.hosts.ssh.settings import Hosts
from infra.target import Target


def is_wanted(settings: Settings, _stack: str) -> bool:
    """Return whether the stack lists existing machines."""
    return isinstance(settings.fleet, Hosts)


def declare(settings: Settings, _stack: str) -> Target:
    """Declare the runtime; see `infra/hosts/target.py`."""
    # Not at the top: other stacks would pay for imports that they do not need.
    from infra.hosts import target  # noqa: PLC0415

    return target.hosts(settings)
