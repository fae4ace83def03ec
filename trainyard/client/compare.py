"""Groups of runs side by side: their time, nodes and throughput."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainyard.access import typed
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status

COLUMNS = ("runs", "jobs", "placement", "seconds", "epochs", "epochs/min")


def rows(
    prefixes: Sequence[str],
    jobs: Sequence[Job],
    placed: Mapping[str, Sequence[str]],
    epochs: Callable[[str], int],
) -> list[dict[str, Any]]:
    """One row for each group: the runs whose names begin with a prefix, each with its last job.

    Args:
        prefixes: of the groups' runs.
        jobs: the cluster's, newest first.
        placed: addresses of the nodes of each job's workers, by Ray's own job id.
        epochs: returns the number of epochs that a run has done.

    Raises:
        ClientError: a group has no run, or a job of it has not ended well.
    """
    return [_row(prefix, _last(prefix, jobs), placed, epochs) for prefix in prefixes]


def _last(prefix: str, jobs: Sequence[Job]) -> dict[str, Job]:
    last: dict[str, Job] = {}
    for job in jobs:
        if job.run.startswith(prefix):
            last.setdefault(job.run, job)
    if not last:
        raise ClientError(
            f"no job's run has a name that begins with {prefix!r}: `train list` has their names"
        )
    for run, job in last.items():
        if job.status is not Status.SUCCEEDED:
            raise ClientError(
                f"the last job of run {run!r} is {job.status}: wait until it has succeeded "
                f"(`train logs -f {typed.argument(run)}`), or leave it out with a longer prefix"
            )
    return dict(sorted(last.items()))


def _row(
    prefix: str,
    last: Mapping[str, Job],
    placed: Mapping[str, Sequence[str]],
    epochs: Callable[[str], int],
) -> dict[str, Any]:
    # From the start of the first to the end of the last: waiting for a GPU counts too.
    began = min(job.start_time for job in last.values())
    seconds = max(0, max(job.end_time for job in last.values()) - began) / 1000
    done = sum(epochs(run) for run in last)
    on: dict[str, list[str]] = {}
    for run, job in last.items():
        for node in dict.fromkeys(placed.get(job.job_id, ["unknown"])):
            on.setdefault(node, []).append(run)
    return {
        "runs": f"{prefix}*",
        "jobs": len(last),
        "placement": "; ".join(f"{node}: {', '.join(on[node])}" for node in sorted(on)),
        "seconds": round(seconds, 1),
        "epochs": done,
        "epochs/min": round(done * 60 / seconds, 2) if seconds else None,
    }
