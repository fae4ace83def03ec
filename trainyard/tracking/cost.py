"""What a run costs, as the queue that started its job tells it."""

from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from trainyard import usage

TIMEOUT_S = 2.0  # Ray kills a job 3 s after it is told to stop
ADDRESS = "cost"  # metadata that the queue adds: where to ask, for what this start costs


def so_far(facts: Mapping[str, Any], run: str) -> float | None:
    """Return what a run has cost since its job was started, in $; None if that is not known.

    `facts` are the job's metadata.
    """
    at, slash, path = str(facts.get(ADDRESS, "")).partition("/")
    with suppress(*usage.ODD, OSError, HTTPException):
        if at:
            found = usage.ask(at, f"{slash}{path}&run={quote(run, safe='')}", TIMEOUT_S)
            return sum(float(each["cost"]) for each in found["shares"]) or None
    return None
