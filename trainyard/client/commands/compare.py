"""`train compare`: groups of runs side by side, their time, nodes and throughput."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainyard.access import typed
from trainyard.client import completion
from trainyard.client.command import Json, Outputs, Stack, reach_jobs
from trainyard.client.console import print_table
from trainyard.client.errors import ClientError

if TYPE_CHECKING:
    from trainyard.client.job_server import Job

COLUMNS = ("runs", "jobs", "placement", "seconds", "epochs", "epochs/min")


def compare(
    context: typer.Context,
    groups: Annotated[
        list[str],
        typer.Argument(
            help="Prefix of the run names of each group.", autocompletion=completion.groups
        ),
    ],
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Compare groups of runs: total time from first start to last end, nodes, throughput."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import history, jobs
    from trainyard.client.state import ClusterState
    from trainyard.client.store import open_store

    store = open_store(stack_outputs)
    found = rows_of(
        groups,
        jobs.submissions(server),
        ClusterState(stack_outputs).placed(),
        lambda run: len(history.read_run(store, run).metrics),
    )
    print_table(found, COLUMNS, as_json=as_json)


def rows_of(
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
        if job.status != "SUCCEEDED":
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
