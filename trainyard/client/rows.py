"""The rows of `train list` and `train runs`, which `train watch` shows too; newest first."""

from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from trainyard.client import costs, fields, history, jobs, run_list, store, waiting
from trainyard.client.dashboard import DashboardError, RefusedError
from trainyard.client.disks import GIB
from trainyard.client.errors import ClientError
from trainyard.client.history import RunRecord
from trainyard.client.job_server import Job, JobServer, Status
from trainyard.client.outputs import StackOutputs
from trainyard.client.recorded import LOST
from trainyard.client.selection import ALL, Selection
from trainyard.client.state import ClusterState

NODES = ("node", "cpu", "memory", "gpu", "gpu memory", "free disk")
JOBS = ("job", "status", "run", "user", "started", "seconds", "waits")
RUNS = ("run", "epochs", "job", "started")  # and figures
LAST = ("best", "cost", "fault")  # where a run has one
USERS = "/api/queue/users"  # of the queue
FIRST = 2  # figures before the time, which a narrow terminal has room for
NO_JOBS = "no jobs yet: `train submit pytorch_distributed_training` starts one"
NO_RUNS = "no runs in the store yet: `train submit pytorch_distributed_training` begins one"


def of_nodes(outputs: StackOutputs) -> list[dict[str, str]]:
    """Return a row for each node that is alive, by NODES: what is in use now.

    Raises:
        DashboardError: the dashboard does not answer.
    """
    from trainyard.client.ui import live  # noqa: PLC0415 - only `train watch` needs it

    return [_of_node(node) for node in live.nodes(outputs)]


def of_jobs(
    listed: Sequence[Job], outputs: StackOutputs, chosen: Sequence[Job] | None = None
) -> list[dict[str, Any]]:
    """Return a row for each submitted job, by JOBS; one that waits says why, if that is known.

    Args:
        listed: all jobs that the cluster knows.
        outputs: the outputs of the cluster's stack.
        chosen: those that get a row; None for all that were submitted, newest first.
    """
    reasons = waiting.Reasons(listed, outputs, ClusterState(outputs))
    return [
        of_job(job) | {"waits": _wait(job, reasons)}
        for job in (jobs.newest_first(listed) if chosen is None else chosen)
    ]


def of_job(job: Job) -> dict[str, Any]:
    """Return the row of a job, without its wait."""
    return {
        "job": job.submission_id,
        "status": str(job.status),
        "run": job.run,
        "user": job.user,
        "started": _local(job.start_time),
        "seconds": job.seconds,
    }


def of_queue(server: JobServer, outputs: StackOutputs) -> list[dict[str, Any]]:
    """Return a row for each job of a queue: those that run, then those that wait, in their order.

    Raises:
        ClientError: the stack has no queue.
        DashboardError: it does not answer.
    """
    try:
        found = server.queue()
    except RefusedError as refused:
        if refused.status != HTTPStatus.NOT_FOUND:
            raise
        raise ClientError(
            f"stack {outputs.stack!r} has no queue: set queue to true in its settings and run "
            "`make up`, or see what Ray knows with `train list`"
        ) from None
    return fields.decoded(found, _of_queued)


def _of_queued(value: Any) -> dict[str, Any]:
    place = int(fields.amount(value, "place"))
    texts = {name: fields.typed(value, name, str) for name in ("user", "needs", "reason")}
    names = {name: fields.identifier(value, name) for name in ("job", "run")}
    times = {
        name: _local(int(fields.amount(value, name, fields.LATEST_MS / 1000) * 1000))
        for name in ("since", "begins")
    }
    waits = fields.typed(value, "state", str) == "WAITING"
    numbers = {name: fields.typed(value, name, int) for name in ("priority", "attempt")}
    return {"place": (place or "") if waits else "runs", **names, **texts, **times, **numbers}


def of_users(found: Any) -> list[dict[str, str]]:
    """Return a row for each user of a queue."""

    def row(value: Any) -> dict[str, str]:
        times = {
            name: _local(int(fields.amount(value, name, fields.LATEST_MS / 1000) * 1000))
            for name in ("since", "seen")
        }
        return {name: fields.identifier(value, name) for name in ("name", "role")} | times

    return fields.decoded(found, row)


def of_runs(
    outputs: StackOutputs,
    names: Sequence[str] | None = None,
    selection: Selection = ALL,
) -> list[dict[str, Any]]:
    """Return a row for each run of the store, or those with names, by `of_run`; damaged: `fault`.

    With names it is asked again and again, so costs are those of the store.

    Raises:
        ClientError: the store cannot be read.
    """
    states = _states(outputs)
    known = costs.of_runs(costs.NOTHING if names else costs.shortly(outputs))
    found = costs.added(run_list.list_runs(store.open_store(outputs), names), known)
    newest_first = sorted(found, key=lambda run: -run.started)
    told = ((run, states.get(run.name, "") or run.status) for run in newest_first)
    chosen = selection.of(
        ((run, status, run.user, run.started) for run, status in told), outputs.user
    )
    return [of_run(run, states.get(run.name, "")) for run in chosen]


def of_run(run: RunRecord, job: str) -> dict[str, Any]:
    """Return the row of a run; `job` is the status of its newest job, "" if it is not known."""
    last = run.metrics[-1] if run.metrics else {}
    return {
        "run": run.name,
        "user": run.user,
        "epochs": history.epochs(run, run.epochs),
        "job": job or run.status,
        "figures": {
            name: history.rounded(last[name]) for name in history.figures([last], len(last))
        },
        "best": history.best(run),
        "cost": run.cost and round(run.cost, 2),
        "started": _local(run.started),
        "fault": run.fault,
    }


def table_of_runs(found: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows and columns of a table of runs: the figures that most of them have."""
    names = [each for each in history.figures(row["figures"] for row in found) if each not in RUNS]
    columns = [*RUNS[:-1], *names[:FIRST], RUNS[-1], *names[FIRST:]]
    columns += [each for each in LAST if any(row[each] for row in found)]
    return [row["figures"] | row for row in found], columns


def _of_node(node: dict[str, Any]) -> dict[str, str]:
    gpus, disk = node["gpus"], node["disk"]
    return {
        "node": node["node"],
        "cpu": _percent(node["cpu"]),
        "memory": _share(node["memory"]),
        "gpu": ", ".join(_percent(gpu["used"]) for gpu in gpus),
        "gpu memory": ", ".join(_share(gpu["memory"]) for gpu in gpus),
        "free disk": f"{(disk[1] - disk[0]) / GIB:.1f} GiB" if disk else "",
    }


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"


def _share(amounts: list[float] | None) -> str:
    """Used and all of a memory, both in bytes."""
    return f"{amounts[0] / GIB:.1f}/{amounts[1] / GIB:.1f} GiB" if amounts else ""


def _wait(job: Job, reasons: waiting.Reasons) -> str:
    if job.status is Status.UNREADABLE or job.message == LOST:
        return job.message
    if wait := reasons.of(job):
        return wait.reason
    first = job.message.strip().partition("\n")[0]
    return first if job.status is Status.PENDING else waiting.told(job)


def _states(outputs: StackOutputs) -> dict[str, str]:
    """Job state by run; empty when no cluster answers, since the store outlives it."""
    if not outputs.dashboard_url:
        return {}
    try:
        found = jobs.submissions(JobServer(outputs))
    except (ClientError, DashboardError):
        return {}
    return {job.run: str(job.status) for job in reversed(found)}


def _local(milliseconds: int) -> str:
    """A time as this machine's zone has it; "" for 0."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="seconds") if milliseconds else ""
