"""Errors of the client's stores."""

from trainyard.client.errors import ClientError
from trainyard.store import objects


class TooLargeError(ClientError):
    """A small file is longer than its bound."""


class AwayError(ClientError, objects.AwayError):
    """The store does not answer at the moment."""
