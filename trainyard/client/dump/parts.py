"""What `train debug-dump` asks a stack for: its state on this machine, and its cluster."""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import metadata
from itertools import islice
from typing import Any
from urllib.parse import quote

import urllib3

from trainyard.client import fields
from trainyard.client import outputs as contract
from trainyard.client.dashboard import Dashboard, DashboardError, JsonServer, RefusedError
from trainyard.client.dump.masks import without_variables
from trainyard.client.errors import ClientError
from trainyard.client.info import MONITORING
from trainyard.client.job_server import LOG_TIMEOUT_S, NO_NODE, RAW_LOG, JobServer
from trainyard.client.jobs import newest_first
from trainyard.client.outputs import StackOutputs
from trainyard.client.state import ClusterState

STATE_S = 150  # for the state's process, whose services have 45 s
TIMEOUT_S = 20
LINES, AGENT_LINES = 3000, 400  # of a job's log, and of each log of a node
MOST_PIECES = 100  # of a log, of 256 KiB at most
JOBS, NODES = 5, 20  # whose logs are kept, the newest and the first
LISTS = {
    "ray/nodes.json": "/api/v0/nodes?detail=1&limit=1000",
    "ray/status.json": "/api/cluster_status",
    "jobs/jobs.json": "/api/jobs/",
}
PROMETHEUS = {
    "monitoring/targets.json": "/api/v1/targets?state=active",
    "monitoring/alerts.json": "/api/v1/alerts",
}
KINDS = ("raylet", "agent", "gcs_server", "dashboard", "autoscaler")  # of Ray's logs: no job's
PACKAGES = ("trainyard-ray", "ray", "torch", "pulumi", "urllib3", "asyncssh", "docker")
PROGRAMS = ("pulumi version", "docker --version", "git describe --always --dirty")

Parts = dict[str, Callable[[], Any]]


def versions() -> dict[str, Any]:
    """Return the versions of this client, of its packages and of its machine."""
    found: dict[str, Any] = {"python": sys.version, "platform": platform.platform()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    for command in PROGRAMS:
        with suppress(OSError, subprocess.TimeoutExpired):
            done = contract.run_in_checkout(command.split(), TIMEOUT_S)
            found[command] = (done.stdout or done.stderr).strip()
    return found


def of_state(stack: str) -> dict[str, Any]:
    """Return `secrets`, `files` and `unread` of a stack's state and services, or of its settings.

    Raises:
        ClientError: its secrets cannot be read.
        subprocess.TimeoutExpired: the state was not read in time.
    """
    asked = ["-m", "infra.operate.debug_dump", "-C", str(contract.checkout()), "-s", stack]
    done = contract.run_in_checkout([sys.executable, "-P", *asked], STATE_S)
    if done.returncode:
        why = (done.stderr.strip() or "no reason given").splitlines()[-1].removeprefix("error: ")
        raise ClientError(f"{why}; without its secrets nothing could be hidden")
    return dict(json.loads(done.stdout))


def of_cluster(outputs: StackOutputs) -> Parts:
    """Return what to ask a cluster for, by the names of files."""
    servers: list[tuple[JsonServer, Mapping[str, str]]] = [(Dashboard(outputs), LISTS)]
    for service in outputs.services:
        if service.title == MONITORING and service.url:
            login = f"{service.user}:{service.password}" if service.password else None
            headers = urllib3.make_headers(basic_auth=login)
            servers.append((JsonServer(service.url, headers), PROMETHEUS))
    return {
        name: partial(_json, server, path)
        for server, paths in servers
        for name, path in paths.items()
    }


def logs(outputs: StackOutputs) -> Parts:
    """Return which logs to ask for, of nodes and jobs; DashboardError if they are not told."""
    dashboard = Dashboard(outputs)
    parts: Parts = {
        f"ray/{quote(node.address or node.id, safe='')}.log": partial(_agents, dashboard, node.id)
        for node in ClusterState(outputs).nodes()[:NODES]
    }
    for job in newest_first(JobServer(outputs).jobs())[:JOBS]:
        asked = {"node_id": "any", "submission_id": job.submission_id, "lines": str(LINES)}
        parts[f"jobs/{quote(job.submission_id, safe='')}.log"] = partial(_log, dashboard, asked)
    return parts


def _json(server: JsonServer, path: str) -> Any:
    return without_variables(server.get(path, TIMEOUT_S))


def _agents(dashboard: Dashboard, node: str) -> str:
    """Return the ends of the logs of a node's own processes, each below its name."""
    listed = dashboard.get(f"/api/v0/logs?node_id={quote(node, safe='')}", TIMEOUT_S)
    kinds = fields.typed(fields.typed(listed, "data", dict), "result", dict)
    text = ""
    for name in [str(name) for kind in KINDS for name in kinds.get(kind, [])]:
        text += f"==> {name} <==\n"
        try:
            asked = {"node_id": node, "filename": name, "lines": str(AGENT_LINES)}
            text += _log(dashboard, asked)
        except DashboardError as error:
            text += f"(not read: {error})\n"
    return text


def _log(dashboard: Dashboard, asked: Mapping[str, str]) -> str:
    pieces = dashboard.stream(RAW_LOG, LOG_TIMEOUT_S, **asked)
    try:  # a line may have no end
        return b"".join(islice(pieces, MOST_PIECES)).decode(errors="replace")
    except RefusedError as error:
        if NO_NODE in error.text:
            return ""  # of a job that never ran: the list of jobs says why
        raise
