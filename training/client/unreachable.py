"""What goes wrong between this client and a head that restarts or is lost, in one message."""

from __future__ import annotations

import re

import requests

from training.client.errors import ClientError

# Of Ray's client: `Request failed with status code 500: ...`
REFUSED = re.compile(r"Request failed with status code (\d+): (.*)", re.DOTALL)
NO_JOB = re.compile(r"Job (\S+) does not exist")


def explained(error: Exception) -> ClientError | None:
    """The error as the user is told of it; None where it is of another kind.

    Args:
        error: of Ray's client, of `requests` or of a socket.
    """
    if isinstance(error, requests.RequestException | ConnectionError | TimeoutError):
        return _restarting(type(error).__name__)
    found = REFUSED.match(str(error)) if isinstance(error, RuntimeError) else None
    if found is None:
        return None
    if missing := NO_JOB.search(found[2]):
        return ClientError(
            f"the cluster has no job {missing[1][:80]} any more: its head was restarted, and has "
            "forgotten its jobs. What they stored is in `train runs`; submitted again under its "
            "name a run goes on"
        )
    return _restarting(f"status {found[1]}")


def _restarting(what: str) -> ClientError:
    return ClientError(
        f"the cluster's head does not answer ({what}): it was just lost and restarts, or is busy. "
        "Try again in a moment; if that does not help, run `make up`"
    )
