"""The jobs that the runs of a store record, for those that no cluster lists; a run's deletion."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from trainyard.client import claims, fields, jobs, run_list
from trainyard.client.console import warn
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status
from trainyard.client.outputs import StackOutputs
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

LOST = "its end is not recorded: its cluster or its notebook has ended first"
AWAY = "its end is not recorded: its cluster does not answer"
MESSAGES = {Status.FAILED: LOST, Status.UNREADABLE: AWAY}


def listed(outputs: StackOutputs) -> list[Job] | None:
    """Return the jobs that a cluster lists; none if it is down; None if it does not answer."""
    if not outputs.dashboard_url:
        return []
    try:
        return jobs.connect(outputs).jobs()
    except (ClientError, DashboardError) as error:
        warn(f"warning: {error}")
        return None


def unlisted(store: Store, known: Sequence[Job] | None, begins: Sequence[str] = ()) -> list[Job]:
    """Return the newest job of each run, or of those whose name begins so, that is not known.

    `known` is as `listed` returns it.

    Raises:
        ClientError: the store cannot be read.
    """
    ids = {job.submission_id for job in known or ()}
    lost = Status.UNREADABLE if known is None else Status.FAILED
    chosen = [name for name in store.folders() if name.startswith((*begins,))] if begins else None
    found = []
    for run in run_list.list_runs(store, chosen):
        for record in run.jobs[-1:]:
            with suppress(*fields.FAULTS):  # damaged
                found.append(_job(run.name, record, lost))
    return [job for job in found if job.submission_id not in ids]


def delete(store: Store, run: str) -> None:
    """Delete a run and its claims; its records last, so that it can be named again if this fails.

    Raises:
        ClientError: the store does not delete it.
    """
    files = sorted(store.listed(run), key=lambda file: file in run_folder.RECORDS)
    store.delete(f"{run_folder.SUMMARIES}/{run}", *(f"{run}/{file}" for file in files))
    held = f"{claims.FOLDER}/{run}"
    store.delete(*(f"{held}/{each}" for each in store.listed(held)))


def _job(run: str, record: Mapping[str, Any], lost: Status) -> Job:
    ended = "status" in record
    if run_folder.NOTEBOOK in record["command"]:
        lost = Status.RUNNING if run_folder.is_open_notebook(record) else Status.FAILED
    begun = fields.milliseconds(fields.typed(record, "started", str))
    return Job(
        status=Status(record["status"]) if ended else lost,
        entrypoint=" ".join(map(str, fields.typed(record, "command", list))),
        submission_id=fields.identifier(record, "job"),
        message="" if ended else MESSAGES.get(lost, ""),
        start_time=begun,
        end_time=fields.milliseconds(record["ended"]) if ended else begun,
        metadata={"run": run, "user": fields.identifier(record, "user")},
    )
