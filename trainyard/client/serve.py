"""`train serve` and `train services`: a job deploys, Ray's dashboard lists the services."""

from __future__ import annotations

import time
from typing import Any

from trainyard.access import typed
from trainyard.client import feasibility, fields, health, history, submission
from trainyard.client.dashboard import Dashboard, DashboardError, JsonServer
from trainyard.client.errors import ClientError
from trainyard.client.feasibility import Bundle
from trainyard.client.job_server import JobServer
from trainyard.client.outputs import StackOutputs
from trainyard.client.scripts import PACKAGE, Script
from trainyard.client.store import open_store
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

DEPLOY = Script(
    name="serve",
    path=PACKAGE / "serving" / "deploy.py",
    command=("python", "-m", "trainyard.serving.deploy"),
    working_dir=None,
    module=PACKAGE,
)
COLUMNS = ("service", "status", "replicas", "run", "checkpoint", "url", "message")
REQUEST_TIMEOUT_S = 10.0
ANSWER_DEADLINE_S = 30.0
POLL_S = 0.5


def start(
    run: str,
    service: str,
    outputs: StackOutputs,
    *,
    checkpoint: str | None,
    replicas: int,
    replica: Bundle,
    timeout_s: float,
) -> tuple[JobServer, str]:
    """Submits the job that deploys a run's checkpoint.

    Args:
        run: the run with the checkpoint.
        service: name of the service and of its route; one that exists is updated.
        outputs: of the stack.
        checkpoint: of the run; None for the newest valid one.
        replicas: how many.
        replica: CPU and GPU of each.
        timeout_s: until all replicas answer.

    Returns:
        The job server, and the job's submission id.

    Raises:
        ClientError: a bad name, a run that is not in the store or has no checkpoint, no node can
            hold a replica, or a check failed.
    """
    for name in (run, service):
        history.valid_name(name)
    if not outputs.serve_url:
        raise ClientError(
            f"stack {outputs.stack!r} has no address for services (its output serveUrl is empty): "
            + (
                "serve in a stack of your own"
                if outputs.attached
                else "run `make up` with this version"
            )
        )
    feasibility.check_fits([replica] * replicas, outputs)
    if outputs.storage_url and not outputs.keeps_files_away:
        _check_stored(run, checkpoint, open_store(outputs))
    arguments = [run, "--name", service, "--replicas", str(replicas), "--timeout", f"{timeout_s:g}"]
    arguments += ["--cpus", f"{replica['CPU']:g}", "--gpus", f"{replica['GPU']:g}"]
    if checkpoint is not None:
        arguments += ["--checkpoint", checkpoint]
    return _submit(service, arguments, outputs)


def stop(service: str, outputs: StackOutputs) -> tuple[JobServer, str]:
    """Submits the job that withdraws a service.

    Raises:
        ClientError: the service does not exist, or a check failed.
    """
    history.valid_name(service)
    known = [row["service"] for row in services(outputs)]
    if service not in known:
        there = f"there are {', '.join(known)}" if known else "nothing is served"
        raise ClientError(f"no service is called {service!r}: {there}")
    return _submit(service, ["--name", service, "--stop"], outputs)


def services(outputs: StackOutputs) -> list[dict[str, Any]]:
    """Return the services of a cluster, by COLUMNS.

    Raises:
        ClientError: the dashboard does not list them.
    """
    path = "/api/serve/applications/"
    try:
        answer = Dashboard(outputs).get(path, REQUEST_TIMEOUT_S)
        found = sorted(fields.typed(answer, "applications", dict).items())
    except (DashboardError, fields.FieldError) as error:
        raise ClientError(
            f"{outputs.dashboard_url}{path} does not tell what is served ({error}): is the "
            f"stack up, and are the outputs its own? {health.remedy(outputs)}"
        ) from None
    return fields.decoded(found, lambda each: _row(each[1], outputs), _unreadable)


def address(service: str, outputs: StackOutputs) -> str:
    """Return the address of a service."""
    return f"{outputs.serve_url}/{service}"


def wait_for_answer(service: str, outputs: StackOutputs) -> dict[str, Any]:
    """Asks a service for its health, from here.

    Returns:
        Its facts about its model.

    Raises:
        ClientError: it does not answer, though the cluster says that it runs.
    """
    path, server = f"/{service}/-/healthy", JsonServer(outputs.serve_url, {})
    deadline = time.monotonic() + ANSWER_DEADLINE_S
    while True:
        try:
            model: dict[str, Any] = server.get(path, REQUEST_TIMEOUT_S)["model"]
        except (DashboardError, KeyError, TypeError) as error:
            if time.monotonic() > deadline:
                raise ClientError(
                    f"service {service} runs, and {server.url}{path} does not answer from here "
                    f"({error}): is the output serveUrl right, and the way to the head's port open?"
                ) from None
            time.sleep(POLL_S)
        else:
            return model


def how_to_ask(service: str, outputs: StackOutputs) -> str:
    """Return a command line that sends two images; the token is not an argument of a program."""
    token = typed.command(f"python -m engine output serveToken --show-secrets -s {outputs.stack}")
    return (
        f"""curl -H @<(printf 'Authorization: Bearer %s' "$({token})") """
        f"-F images=@a.jpg -F images=@b.jpg {address(service, outputs)}/predict"
    )


def _check_stored(run: str, checkpoint: str | None, store: Store) -> None:
    """Refuses a run or checkpoint that the store lacks; the job checks the files."""
    found = [name for name in store.folders(run) if name.startswith(run_folder.CHECKPOINT)]
    if checkpoint in found or (checkpoint is None and found):
        return
    if not found and history.find_run(store, run) is None:
        raise history.no_run(store, run)
    if not found:
        raise ClientError(
            f"run {run!r} has no checkpoint yet: `train show {run}` tells how far it is"
        )
    raise ClientError(
        f"run {run!r} has no checkpoint {str(checkpoint)[:80]!r}: give one of {', '.join(found)}"
    )


def _submit(service: str, arguments: list[str], outputs: StackOutputs) -> tuple[JobServer, str]:
    # Not the run's own name: the run may be trained meanwhile. One job a service at a time.
    name = f"serve-{service}"
    request = submission.Request(
        script=DEPLOY,
        arguments=arguments,
        run_name=name,
        runtime_env=submission.runtime_env(None, DEPLOY, name, progress=False),
    )
    return submission.submit(request, outputs, force=False)


def _row(application: dict[str, Any], outputs: StackOutputs) -> dict[str, Any]:
    # Services of `train serve` have one deployment; another job's may have any number.
    deployments = list(application["deployments"].values())
    replicas = [replica for each in deployments for replica in each["replicas"]]
    running = sum(replica["state"] == "RUNNING" for replica in replicas)
    served = deployments[0]["deployment_config"].get("user_config") if deployments else None
    served = served if isinstance(served, dict) else {}  # Ray takes any JSON
    said = [application["message"], *(each["message"] for each in deployments)]
    return {
        "service": fields.identifier(application, "name"),
        "status": application["status"],
        "replicas": f"{running}/{sum(each['target_num_replicas'] for each in deployments)}",
        "run": served.get("run", ""),
        "checkpoint": served.get("checkpoint", ""),
        "url": f"{outputs.serve_url}{application['route_prefix'] or ''}",
        "message": next((text for text in said if text), ""),
    }


def _unreadable(named: tuple[str, Any], why: str) -> dict[str, Any]:
    row = {"service": named[0], "status": fields.UNREADABLE, "message": why}
    return dict.fromkeys(COLUMNS, "") | row
