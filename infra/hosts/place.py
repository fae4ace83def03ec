"""Other machines as places of a stack: those of any source, as SSH reaches all of them."""

from cluster.descriptor import Stack
from infra.config import Settings


def is_wanted(settings: Settings, _stack: str) -> bool:
    """Return whether the stack asks a source for machines."""
    return settings.fleet is not None


def declare(settings: Settings, _stack: str) -> Stack:
    """Declare the runtime; see `infra/hosts/target.py`."""
    # Not at the top: other stacks would pay for imports that they do not need.
    from infra.hosts import target  # noqa: PLC0415

    return target.hosts(settings)
