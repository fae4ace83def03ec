"""Jobs and runs as rows of the page's tables, and one of each in full."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from trainyard.access import typed
from trainyard.client import failure, history, waiting
from trainyard.client.errors import ClientError
from trainyard.client.history import RunRecord
from trainyard.client.job_server import ACTIVE, Job
from trainyard.client.outputs import StackOutputs
from trainyard.client.ui.table import HIDDEN
from trainyard.json_values import number
from trainyard.report.curves import along, epoch_of
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

MOST_COMPARED = 12  # runs whose curves are drawn at once
MOST_POINTS = 2000  # of a curve
MOST_KEYS = 200  # of a record that a stranger may have written
MOST_FILES = 1000  # of a run, in its list
MOST_BYTES = 64 * 2**20  # of a file that the page shows or downloads
SHOWN = (f"{run_folder.OUTPUT}/", f"{run_folder.LOGGED}/")  # first in the list


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


def waits(job: Job, reasons: waiting.Reasons, stack: str) -> str:
    """Return why a job waits, and until when; "" if it does not."""
    found = reasons.of(job)
    if found is None:
        return ""
    said = f"{found.reason}; {found.ends}" if found.ends else found.reason
    return typed.commands(said, stack)


def in_full(job: Job, reasons: waiting.Reasons, stack: str) -> dict[str, Any]:
    """Return all facts about a job, as `train status` has them."""
    return of_job(job) | {
        "entrypoint": job.entrypoint,
        "commit": job.metadata.get("commit", ""),
        "message": failure.of(job)
        if job.message and job.status not in ACTIVE
        else waiting.told(job),
        "waits": waits(job, reasons, stack),
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
        "job": str(jobs[0].status) if jobs else record.status,
        "user": jobs[0].user if jobs else str((record.jobs or [{}])[-1].get("user", "")),
        "epochs": record.epochs,
        "of": number(record.config.get("epochs")),
        "figures": {name: number(last[name]) for name in history.figures([last], MOST_KEYS)},
        "goals": record.goals,
        "best": record.best,
        "started": record.started,
        "checkpoint": (record.checkpoint or "").rpartition("/")[2],
        "cost": record.cost and round(record.cost, 2),
        # Without an account: the whole stack was there for the run.
        "most": round(sum(ran) / 3600 * dollars, 2)
        if dollars and ran and not record.cost
        else None,
        "fault": record.fault,
        HIDDEN: {**record.config, **last},
    }


def in_detail(record: RunRecord, row: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """Return a run with its settings, starts, jobs and curves; `known` are jobs of the cluster."""
    curves = _curves(record.logged) | _curves(record.metrics)
    return {
        **{key: value for key, value in row.items() if key != HIDDEN},
        "checkpoint": record.checkpoint or "",
        "unservable": record.unservable,
        "config": dict([*record.config.items()][:MOST_KEYS]),
        "starts": [
            {key: each[key] for key in ("time", "commit", "python", "packages")}
            for each in record.starts[-20:]
        ],
        "jobs": [
            {
                "job": id_ if (id_ := str(job.get("job"))) in known else "",
                "told": history.told(job),
                "log": run_folder.log_of(job),
                "upload": str(job.get("upload", ""))[:MOST_KEYS],
                "commit": str(job.get("commit", ""))[:MOST_KEYS],
            }
            for job in record.jobs[-20:]
        ],
        "curves": dict([*curves.items()][:MOST_KEYS]),
        "usage": _curves(record.usage),
        "shown": record.shown,
    }


def _curves(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the points of each figure, evenly chosen and with the last, and what they are over.

    A point is an epoch or step, the figure, and the minutes since the first record.
    """
    every = -(-len(records) // MOST_POINTS) or 1
    shown = [*enumerate(records)][::-every][::-1]
    found: dict[str, dict[str, Any]] = {}
    for name in history.figures(records, MOST_KEYS):
        points = [
            (epoch_of(record, index), value, _minutes(record, records[0]))
            for index, record in shown
            if (value := number(record.get(name))) is not None
        ]
        if points:
            found[name] = {"over": along(records[-1]), "points": points}
    return found


def _minutes(record: Mapping[str, Any], first: Mapping[str, Any]) -> float | None:
    began, now = (number(each.get("time")) for each in (first, record))
    if began is None or now is None:
        return number(record.get("minutes"))
    return (now - began) / 60


def of_files(store: Store, run: str) -> dict[str, Any]:
    """Return the files of a run: `rows` of `name` and `size` (bytes), and `total`.

    What the run has left comes first, then its other files.
    """
    found = store.listed(history.valid_name(run))
    names = sorted(found, key=lambda name: (not name.startswith(SHOWN), name))
    rows = [{"name": name, "size": found[name].size} for name in names[:MOST_FILES]]
    return {"rows": rows, "total": len(found)}


def file(store: Store, run: str, name: str) -> bytes:
    """Return a file of a run.

    Raises:
        ClientError: the run has no such file, or it is too large for the page.
    """
    listed = store.listed(history.valid_name(run)).get(name)
    if listed and listed.size > MOST_BYTES:
        raise ClientError(
            f"{name} has {listed.size >> 20} MiB, and this page shows at most "
            f"{MOST_BYTES >> 20} MiB: run `train pull {run}`"
        )
    content = store.get(f"{run}/{name}", MOST_BYTES) if listed else None
    if content is None:
        raise ClientError(f"run {run!r} has no file {name[:80]!r}: load the page again")
    return content
