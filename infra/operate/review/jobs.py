"""Asks the cluster for the running jobs that lose nodes by a plan."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.operate import dashboard
from infra.operate.dashboard import AskError
from infra.operate.review.planned import Change, StackPlan
from node.programs import RESTARTING
from trainyard.access import outputs

PATH = "/api/jobs/"
HEAD, WORKER = "ray-head", "ray-worker-"
PROGRAM = "process:Program"
RUNNERS = (PROGRAM, ":Container")  # what runs nodes of Ray
GUARD, ALL_PODS = ":RecreateGuard", "all pods of Ray"
RUNNING = ("PENDING", "RUNNING")


@dataclass(frozen=True, kw_only=True)
class AtRisk:
    """The effect of a plan on jobs.

    Attributes:
        nodes: names of Ray nodes that end or restart.
        jobs: running jobs, each with its run: all of them end if the head does.
        unknown: why the cluster could not be asked, "" where it could.
    """

    nodes: list[str]
    jobs: list[str]
    unknown: str = ""


def at_risk(planned: StackPlan) -> AtRisk:
    """Return the effect of a plan on jobs; the cluster is asked only if a node of Ray changes."""
    nodes = sorted({name for change in planned.changes if (name := _node(change))})
    if not nodes or not planned.outputs.get(outputs.DASHBOARD_URL):
        return AtRisk(nodes=nodes, jobs=[])
    try:
        hosts = (each.props.get("host") for each in planned.before)
        way = dashboard.way(planned.outputs, hosts)
        return AtRisk(nodes=nodes, jobs=running(planned.outputs, way))
    except AskError as error:
        return AtRisk(nodes=nodes, jobs=[], unknown=str(error))


def running(known: Mapping[str, Any], way: dashboard.Way) -> list[str]:
    """Return the jobs that run now, each with its run.

    Raises:
        AskError: the cluster cannot be asked.
    """
    answer = dashboard.ask_dashboard(known, way, PATH)
    try:
        active = [job for job in answer if job["status"] in RUNNING and job["submission_id"]]
        return sorted(_told(job) for job in active)
    except (LookupError, TypeError) as error:
        raise AskError(f"Ray's dashboard gives no list of jobs ({error!r})") from None


def _node(change: Change) -> str:
    """Return the name of the Ray node that a change ends, "" for none."""
    if change.type.endswith(GUARD) and change.operation == "update":
        return ALL_PODS
    if not change.type.endswith(RUNNERS) or change.operation == "create" or _stays(change):
        return ""
    for mark in (HEAD, WORKER):
        if mark in change.name:
            return change.name[change.name.index(mark) :]
    return ""


def _stays(change: Change) -> bool:
    """Whether a change leaves a program running; one without differences restarts it."""
    if (change.type, change.operation) != (PROGRAM, "update") or not change.differs:
        return False
    return not {re.split(r"\W", path)[0] for path in change.differs} & {*RESTARTING}


def _told(job: Mapping[str, Any]) -> str:
    run = (job.get("metadata") or {}).get("run")
    return f"{job['submission_id']} ({run})" if run else str(job["submission_id"])
