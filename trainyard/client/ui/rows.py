"""Jobs and runs as rows of the page's tables, and one of each in full."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainyard.access import typed
from trainyard.client import failure, waiting
from trainyard.client.history import RunRecord
from trainyard.client.job_server import ACTIVE, Job
from trainyard.client.outputs import StackOutputs
from trainyard.client.state import ClusterState
from trainyard.client.ui.table import HIDDEN
from trainyard.json_values import number

MOST_COMPARED = 12  # runs whose curves are drawn at once
MOST_EPOCHS = 2000  # of a run, evenly chosen
MOST_KEYS = 200  # of a record that a stranger may have written


def of_job(job: Job) -> dict[str, Any]:
    """Return a job; times in milliseconds since 1970, 0 before it started."""
    return {
        "job": job.submission_id,
        "status": str(job.status),
        "run": job.run,
        "user": job.user,
        "script": job.metadata.get("job", ""),
        "started": job.start_time,
        "seconds": job.seconds,
    }


def waits(job: Job, others: Sequence[Job], outputs: StackOutputs, state: ClusterState) -> str:
    """Return why a job waits, and until when; "" if it does not."""
    found = waiting.explain(job, others, outputs, state)
    if found is None:
        return ""
    said = f"{found.reason}; {found.ends}" if found.ends else found.reason
    return typed.commands(said, outputs.stack)


def in_full(
    job: Job, others: Sequence[Job], outputs: StackOutputs, state: ClusterState
) -> dict[str, Any]:
    """Return all facts about a job, as `train status` has them."""
    return of_job(job) | {
        "entrypoint": job.entrypoint,
        "commit": job.metadata.get("commit", ""),
        "message": failure.of(job) if job.message and job.status not in ACTIVE else "",
        "waits": waits(job, others, outputs, state),
    }


def hourly_cost(outputs: StackOutputs) -> float:
    """Return $ an hour of all nodes that are there, or may be."""
    return sum(node.hourly_cost for node in outputs.nodes)


def of_runs(
    records: Iterable[RunRecord], jobs: Iterable[Job], outputs: StackOutputs
) -> list[dict[str, Any]]:
    """Return the rows of runs, the newest first, as the jobs are."""
    of_run: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.submitted:
            of_run[job.run].append(job)
    dollars = hourly_cost(outputs)
    rows = [_of_run(record, of_run[record.name], dollars) for record in records]
    return sorted(rows, key=lambda row: -row["started"])


def _of_run(record: RunRecord, jobs: Sequence[Job], dollars: float) -> dict[str, Any]:
    last = record.metrics[-1] if record.metrics else {}
    ran = [job.seconds for job in jobs if job.status != "PENDING"]
    return {
        "run": record.name,
        "job": str(jobs[0].status) if jobs else "",
        "user": jobs[0].user if jobs else "",
        "epochs": record.epochs,
        "of": number(record.config.get("epochs")),
        "loss": number(last.get("loss")),
        "valid_acc": number(last.get("valid_acc")),
        "test_acc": number(last.get("test_acc")),
        "best": record.best,
        "started": record.started,
        "checkpoint": (record.checkpoint or "").rpartition("/")[2],
        # The whole stack was there for the run: the most that it can have cost.
        "cost": round(sum(ran) / 3600 * dollars, 2) if dollars and ran else None,
        "fault": record.fault,
        HIDDEN: {**record.config, **last},
    }


def in_detail(record: RunRecord, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run with its settings, starts and numbers of each epoch."""
    every = -(-len(record.metrics) // MOST_EPOCHS) or 1
    shown = record.metrics[::every]
    if record.metrics and shown[-1] is not record.metrics[-1]:
        shown.append(record.metrics[-1])
    names = dict.fromkeys(key for epoch in shown for key in epoch if key != "epoch")
    curves = {
        name: [number(epoch.get(name)) for epoch in shown]
        for name in list(names)[:MOST_KEYS]
        if any(number(epoch.get(name)) is not None for epoch in shown)
    }
    return {
        **{key: value for key, value in row.items() if key != HIDDEN},
        "checkpoint": record.checkpoint or "",
        "config": {key: record.config[key] for key in list(record.config)[:MOST_KEYS]},
        "starts": [
            {key: each[key] for key in ("time", "commit", "python", "packages")}
            for each in record.starts[-20:]
        ],
        "numbers": [_epoch(epoch, index) for index, epoch in enumerate(shown)],
        "curves": curves,
    }


def _epoch(record: Mapping[str, Any], index: int) -> float:
    """Return the number of an epoch, from 1."""
    found = number(record.get("epoch"))
    return index + 1 if found is None else found + 1
