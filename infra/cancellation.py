"""Ctrl-C for providers that wait: a wait that a cancel ends within a second.

The embedded engine calls `cancel()` of loaded providers. Pulumi's own Python host gets a Cancel
call too, and ignores it; `hear_host()` makes it listen.
"""

import sys
import threading
from types import FunctionType

import pulumi


class CanceledError(pulumi.RunError):
    """The user asked to stop."""


class Cancellation:
    """Lets one operation's waits be ended; it does not end a request that is under way."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """End all waits, now and from now on."""
        self._event.set()

    def check(self) -> None:
        """Raise when the user asked to stop.

        Raises:
            CanceledError: always from `cancel()` on.
        """
        self.sleep(0)

    def sleep(self, seconds: float) -> None:
        """Wait.

        Args:
            seconds: how long.

        Raises:
            CanceledError: the user asked to stop.
        """
        if self._event.wait(seconds):
            raise CanceledError(
                "canceled; what was made is in the state: run up again to go on, or destroy"
            )


def hear_host() -> None:
    """Let Pulumi's Python provider host pass its Cancel call on; nothing elsewhere.

    The host (pulumi/dynamic/__main__.py) answers Cancel and does nothing, so a wait would hold up
    the first Ctrl-C, and the second one makes the CLI drop what is under way. gRPC holds the
    method itself by then: only its code can still be changed.
    """
    host = sys.modules["__main__"]
    servicer = getattr(host, "DynamicResourceProviderServicer", None)
    method = getattr(servicer, "Cancel", None)
    if isinstance(method, FunctionType) and method.__code__ is not _cancel_all.__code__:
        method.__code__ = _cancel_all.__code__


def _cancel_all(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, ARG001
    """Run in place of the host's Cancel, with the host's globals."""
    for provider in list(_PROVIDER_CACHE.values()):  # type: ignore[name-defined]  # noqa: F821
        if hasattr(provider, "cancel"):
            provider.cancel()
    return empty_pb2.Empty()  # type: ignore[name-defined]  # noqa: F821
