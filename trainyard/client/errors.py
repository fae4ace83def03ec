"""The one error that the client shows to its user."""


class ClientError(Exception):
    """Something the user can fix; its text names the value, the bound and the next step."""


class DownError(ClientError):
    """The stack is not up."""


class UnreachedError(ClientError):
    """The job server does not answer at the moment."""
