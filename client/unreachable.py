"""What goes wrong between this client and a head that restarts or is lost, in one message."""

from __future__ import annotations

import re

from client.dashboard import DashboardError, RefusedError, TooLongError
from client.errors import ClientError

NO_JOB = re.compile(r"Job (\S+) does not exist")


def explained(error: Exception) -> ClientError | None:
    """The error as the user is told of it; None where it is of another kind.

    Args:
        error: of the dashboard or of a socket.
    """
    if isinstance(error, RefusedError) and (missing := NO_JOB.search(error.text)):
        return ClientError(
            f"the cluster has no job {missing[1][:80]} any more: its head was restarted, and has "
            "forgotten its jobs. What they stored is in `train runs`; submitted again under its "
            "name a run goes on"
        )
    if isinstance(error, TooLongError):
        return ClientError(
            f"{error}: end what fills it (train list names the jobs, train stop ends one), or look "
            "at a long log with train logs -f, which prints it piece by piece"
        )
    if isinstance(error, DashboardError):
        return _restarting(str(error))
    if isinstance(error, ConnectionError | TimeoutError):
        return _restarting(type(error).__name__)
    return None


def _restarting(what: str) -> ClientError:
    return ClientError(
        f"the cluster's head does not answer ({what}): it was just lost and restarts, or is busy. "
        "Try again in a moment; if that does not help, run `make up`"
    )
