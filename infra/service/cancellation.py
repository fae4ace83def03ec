"""Ctrl-C for providers that wait: a wait that a cancel ends within a second."""

import threading

import pulumi
from pulumi import dynamic

from cluster.provider import A, Provider


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
        self.sleep(0)

    def sleep(self, seconds: float) -> None:
        """Wait.

        Raises:
            CanceledError: the user asked to stop.
        """
        if self._event.wait(seconds):
            raise CanceledError(
                "canceled; the resources made so far are in the state: run up again to go on, or "
                "destroy"
            )


class WaitingProvider(Provider[A]):
    """The base of providers that wait: Ctrl-C ends their waits."""

    def configure(self, req: dynamic.ConfigureRequest) -> None:
        """Make the cancellation, which cannot be stored."""
        super().configure(req)
        self._cancellation = Cancellation()

    def cancel(self) -> None:
        """End all waits; both engines call this (cluster/provider.py)."""
        self._cancellation.cancel()
