"""Errors of a head that restarts or is lost, each as one message."""

import re

from trainyard.client.dashboard import DashboardError, RefusedError, TooLongError
from trainyard.client.errors import ClientError

NO_JOB = re.compile(r"Job (\S+) does not exist")


def explained(error: Exception) -> ClientError | None:
    """Return the error as told to the user; None for another kind of error."""
    if isinstance(error, RefusedError) and (missing := NO_JOB.search(error.text)):
        return ClientError(
            f"the cluster has no job {missing[1][:80]} any more: its head was restarted and "
            "forgot its jobs. Their results are in `train runs`; submit a run again under its name "
            "to go on with it"
        )
    if isinstance(error, RefusedError) and error.status in (401, 403):
        return ClientError(f"the cluster refuses this (status {error.status}): {error.text[:500]}")
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
        "Try again in a moment; if that does not help, `train info` says what is wrong with a stack"
    )
