"""`train compare`: runs side by side, or groups of them: settings, figures, code, throughput."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainyard.access import typed
from trainyard.client import completion
from trainyard.client.command import Json, Outputs, Stack, reach
from trainyard.client.console import print_table
from trainyard.client.errors import ClientError
from trainyard.tracking import run_folder

if TYPE_CHECKING:
    from trainyard.client.history import RunRecord
    from trainyard.client.job_server import Job

FACTS = ("jobs", "status", "placement", "seconds", "epochs", "epochs/min", "best")
VALUES = ("settings", "figures", "code")
NAME = "Fact"  # no run has this name
DIGITS = 12  # of a commit and of an upload's digest
LONGEST = 80  # characters of a cell


def compare(
    context: typer.Context,
    groups: Annotated[
        list[str],
        typer.Argument(
            help="Names of runs, or prefixes of the names of groups.",
            autocompletion=completion.groups,
        ),
    ],
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Compare runs, or groups of runs: settings that differ, figures, code, nodes, throughput.

    The time of a group is that from its first start to its last end.
    """
    from trainyard.client import history, jobs, left_results, recorded
    from trainyard.client.dashboard import RefusedError
    from trainyard.client.state import ClusterState
    from trainyard.client.store import open_store

    stack_outputs = reach(context, left_results.read(stack, outputs))
    listed, store = recorded.listed(stack_outputs), open_store(stack_outputs)
    placed: dict[str, list[str]] = {}
    with suppress(RefusedError):  # a user's token does not show where workers are
        placed = ClusterState(stack_outputs).placed() if listed else {}
    found = rows_of(
        groups,
        jobs.newest_first([*(listed or ()), *recorded.unlisted(store, listed, groups)]),
        placed,
        lambda run: history.read_run(store, run),
    )
    names = [group["runs"] for group in found]
    print_table(found if as_json else side_by_side(found), [NAME, *names], as_json=as_json)


def rows_of(
    prefixes: Sequence[str],
    jobs: Sequence[Job],
    placed: Mapping[str, Sequence[str]],
    read: Callable[[str], RunRecord],
) -> list[dict[str, Any]]:
    """One row for each group: a run, or those whose names begin so, each with its last job.

    A row has FACTS, and `settings`, `figures` and `code` by name: the value of each run. The jobs
    are the cluster's, newest first; `placed` has the nodes of their workers, by Ray's own job id.

    Raises:
        ClientError: a group has no run, or a job of it has not ended.
    """
    return [_row(prefix, _last(prefix, jobs), placed, read) for prefix in dict.fromkeys(prefixes)]


def side_by_side(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a row for each fact, setting that differs, figure, and code."""
    rows = {fact: [str(group[fact] or "") for group in groups] for fact in FACTS}
    for kind in VALUES:
        for name in dict.fromkeys(name for group in groups for name in group[kind]):
            values = [dict.fromkeys(map(str, group[kind].get(name, ()))) for group in groups]
            cells = [", ".join(each)[:LONGEST] for each in values]
            if kind != "settings" or len({*cells}) > 1:
                rows[f"{name} ({kind})" if name in rows else name] = cells
    names = [NAME, *(group["runs"] for group in groups)]
    found = [dict(zip(names, [name, *cells], strict=True)) for name, cells in rows.items()]
    return [row for row in found if any([*row.values()][1:])]


def _last(prefix: str, jobs: Sequence[Job]) -> dict[str, Job]:
    last: dict[str, Job] = {}
    for job in jobs:
        if job.run.startswith(prefix):
            last.setdefault(job.run, job)
    if not last:
        raise ClientError(
            f"no job's run has a name that begins with {prefix!r}: `train list` has their names"
        )
    last = {prefix: last[prefix]} if prefix in last else last
    for run, job in last.items():
        if not job.status.ended:
            raise ClientError(
                f"the last job of run {run!r} is {job.status}: wait until it has ended "
                f"(`train logs -f {typed.argument(run)}`), or leave it out with a longer prefix"
            )
    return dict(sorted(last.items()))


def _row(
    prefix: str,
    last: Mapping[str, Job],
    placed: Mapping[str, Sequence[str]],
    read: Callable[[str], RunRecord],
) -> dict[str, Any]:
    # From the start of the first to the end of the last: waiting for a GPU counts too.
    began = min(job.start_time for job in last.values())
    seconds = max(0, max(job.end_time for job in last.values()) - began) / 1000
    found = [*map(read, last)]
    done = sum(run.epochs for run in found)
    on: dict[str, list[str]] = {}
    for run, job in last.items():
        for node in dict.fromkeys(placed.get(job.job_id, ["unknown"])):
            on.setdefault(node, []).append(run)
    return {
        "runs": prefix if prefix in last else f"{prefix}*",
        "jobs": len(last),
        "status": ", ".join(dict.fromkeys(str(job.status) for job in last.values())),
        "placement": "; ".join(f"{node}: {', '.join(on[node])}" for node in sorted(on)),
        "seconds": round(seconds, 1),
        "epochs": done,
        "epochs/min": round(done * 60 / seconds, 2) if seconds else None,
        "best": _best(found),
    } | {
        kind: {name: [each.get(name, "") for each in of] for one in of for name in one}
        for kind, of in zip(VALUES, zip(*map(_values, found), strict=True), strict=True)
    }


def _values(run: RunRecord) -> tuple[Mapping[str, Any], dict[str, Any], dict[str, str]]:
    """Return a run's settings, its last and best figures, and its code."""
    from trainyard.client import history

    last, job = ([{}, *each][-1] for each in (run.metrics, run.jobs))
    figures = {name: last[name] for name in history.figures([last], len(last))}
    for name, mode in run.goals.items():
        figures[f"best {name}"] = run_folder.best(run.metrics, {name: mode})
    commit, dirty, _ = str(job.get("commit", "")).partition(run_folder.DIRTY)
    upload = str(job.get("upload", "")).rpartition("_ray_pkg_")[2]
    code = {"commit": commit[:DIGITS] + dirty, "upload": upload[:DIGITS]}
    return run.config, {name: history.rounded(value) for name, value in figures.items()}, code


def _best(found: Sequence[RunRecord]) -> str:
    """Return the best run of a group and its value; "" if not all have the same first goal."""
    from trainyard.client import history

    if len({next(iter(run.goals.items()), None) for run in found}) > 1:
        return ""
    rows = [dict.fromkeys(run.goals, run.best) for run in found]
    best = found[next(iter(run_folder.best_first(rows, found[0].goals)))]
    return f"{told}: {best.name}" if (told := history.best(best)) else ""
