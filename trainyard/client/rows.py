"""The rows of `train list` and `train runs`, which `train watch` shows too; newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from trainyard.client import history, jobs, run_list, store, waiting
from trainyard.client.dashboard import DashboardError
from trainyard.client.disks import GIB
from trainyard.client.errors import ClientError
from trainyard.client.history import RunRecord
from trainyard.client.job_server import Job, JobServer, Status
from trainyard.client.outputs import StackOutputs
from trainyard.client.state import OneLook

NODES = ("node", "cpu", "memory", "gpu", "gpu memory", "free disk")
JOBS = ("job", "status", "run", "user", "started", "seconds", "waits")
RUNS = ("run", "epochs", "job", "loss", "valid_acc", "test_acc", "started")
NO_JOBS = "no jobs yet: `train submit pytorch_distributed_training` starts one"
NO_RUNS = "no runs in the store yet: `train submit pytorch_distributed_training` begins one"


def of_nodes(outputs: StackOutputs) -> list[dict[str, str]]:
    """Return a row for each node that is alive, by NODES: what is in use now.

    Raises:
        DashboardError: the dashboard does not answer.
    """
    from trainyard.client.ui import live  # noqa: PLC0415 - only `train watch` needs it

    return [_of_node(node) for node in live.nodes(outputs)]


def of_jobs(server: JobServer, outputs: StackOutputs) -> list[dict[str, Any]]:
    """Return a row for each submitted job, by JOBS; one that waits says why, if that is known.

    Raises:
        DashboardError: the job server does not answer.
    """
    everything = server.jobs()
    state = OneLook(outputs)
    return [
        of_job(job) | {"waits": _wait(job, everything, outputs, state)}
        for job in jobs.newest_first(everything)
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


def of_runs(outputs: StackOutputs, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return a row for each run of the store, or those with names, by RUNS; damaged: `fault`.

    Raises:
        ClientError: the store cannot be read.
    """
    states = _states(outputs)
    found = run_list.list_runs(store.open_store(outputs), names)
    newest_first = sorted(found, key=lambda run: -run.started)
    return [of_run(run, states.get(run.name, "")) for run in newest_first]


def of_run(run: RunRecord, job: str) -> dict[str, Any]:
    """Return the row of a run; `job` is the status of its newest job, "" if it is not known."""
    last = run.metrics[-1] if run.metrics else {}
    return {
        "run": run.name,
        "epochs": history.epochs(run, run.epochs),
        "job": job,
        **{name: _figure(last.get(name)) for name in ("loss", "valid_acc", "test_acc")},
        "started": _local(run.started),
        "fault": run.fault,
    }


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


def _wait(job: Job, others: Sequence[Job], outputs: StackOutputs, state: OneLook) -> str:
    if job.status is Status.UNREADABLE:
        return job.message
    if wait := waiting.explain(job, others, outputs, state):
        return wait.reason
    return job.message.strip().partition("\n")[0] if job.status is Status.PENDING else ""


def _states(outputs: StackOutputs) -> dict[str, str]:
    """Job state by run; empty when no cluster answers, since the store outlives it."""
    try:
        found = jobs.submissions(JobServer(outputs))
    except (ClientError, DashboardError):
        return {}
    return {job.run: str(job.status) for job in reversed(found)}


def _figure(value: Any) -> Any:
    return history.rounded(value) if isinstance(value, int | float) else None


def _local(milliseconds: int) -> str:
    """A time as this machine's zone has it; "" for 0."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return moment.isoformat(sep=" ", timespec="seconds") if milliseconds else ""
