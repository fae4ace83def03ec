"""What providers say to the user, and inputs whose value only an update tells."""

from typing import Any

from pulumi.output import Unknown
from pulumi.runtime.rpc import UNKNOWN

from trainyard.access import terminal

# A variable of the user of `up`: Ray is restarted although its jobs are lost.
FORCE = "TRAINYARD_FORCE"


def say(message: str) -> None:
    """Tell the user something from within a provider: both engines show its output."""
    terminal.warn(message)


def has_unknown(value: Any) -> bool:
    """Return whether any part of a value is known only after an update."""
    if isinstance(value, dict | list | tuple):
        return any(map(has_unknown, value.values() if isinstance(value, dict) else value))
    # Pulumi's host of dynamic providers has an object for it, the embedded engine its sentinel.
    return isinstance(value, Unknown) or bool(value == UNKNOWN)
