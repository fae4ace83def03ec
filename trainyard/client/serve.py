"""`train serve` and `train services`: a job deploys, Ray's dashboard lists the services."""

import json
import time
from contextlib import suppress
from typing import Any

from trainyard import options, serving
from trainyard.access import typed
from trainyard.client import feasibility, fields, health, history, submission
from trainyard.client.console import say
from trainyard.client.dashboard import Dashboard, DashboardError, JsonServer
from trainyard.client.errors import ClientError
from trainyard.client.job_server import JobServer
from trainyard.client.outputs import StackOutputs
from trainyard.client.scripts import PACKAGE, Script
from trainyard.client.store import open_store
from trainyard.errors import JobError
from trainyard.packing import Bundle
from trainyard.serving import uploaded
from trainyard.store import signed
from trainyard.store.objects import MOST_STATE_BYTES
from trainyard.tracking import run_folder

DEPLOY = Script(
    name="serve",
    path=PACKAGE / "serving" / "deploy.py",
    command=("python", "-m", "trainyard.serving.deploy"),
    working_dir=None,
    module=PACKAGE,
)
MOST_REPLICAS = 1000
COLUMNS = ("service", "status", "replicas", "run", "checkpoint", "url", "message")
IMAGES = "-F images=@a.jpg -F images=@b.jpg"
JSON = "--json @inputs.json"
REQUEST_TIMEOUT_S = 10.0
ANSWER_DEADLINE_S = 30.0
POLL_S = 0.5


def start(
    run: str,
    service: str,
    outputs: StackOutputs,
    *,
    checkpoint: str | None,
    replicas: str,
    replica: Bundle,
    timeout_s: float,
    trust_code: bool = False,
) -> tuple[JobServer, str]:
    """Submits the job that deploys a run; returns the job server, and the job's submission id.

    A service of that name is updated. The checkpoint is the newest valid one if it is None.
    `replicas` are a number, or `1:4`, which follows the load; each has the CPU and GPU of
    `replica`, and the least number must answer within `timeout_s`. `trust_code` serves the run's
    own code though another cluster has stored it.

    Raises:
        ClientError: a bad name, a run that is not in the store or cannot be served, no node can
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
    try:
        least, most = options.number_range(replicas)
    except ValueError:
        least = most = 0
    if not 1 <= most <= MOST_REPLICAS:
        raise ClientError(
            f"--replicas {replicas[:80]!r} is not a number from 1 to {MOST_REPLICAS}, or two of "
            "them, the least and the most: give 2, or 1:4"
        )
    feasibility.check_fits([replica] * least, outputs)
    packages: dict[str, Any] = {}
    if outputs.storage_url and not outputs.keeps_files_away:
        packages = _check_stored(run, checkpoint, outputs, trust_code)
    arguments = [run, "--name", service, "--replicas", replicas, "--timeout", f"{timeout_s:g}"]
    arguments += ["--cpus", f"{replica['CPU']:g}", "--gpus", f"{replica['GPU']:g}"]
    if checkpoint is not None:
        arguments += ["--checkpoint", checkpoint]
    if trust_code:
        arguments.append("--trust-code")
    return _submit(service, arguments, outputs, packages)


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
    return _submit(service, ["--name", service, "--stop"], outputs, {})


def deploy_again(outputs: StackOutputs) -> None:
    """Submits the services that a former head of this stack had; ClientError if one is refused."""
    store, key = open_store(outputs), signed.derived(outputs.ray_token)
    kept = store.listed(serving.SERVICES)
    there = {row["service"] for row in services(outputs)} if kept else set()
    for service in sorted(kept.keys() - there):
        name = f"{serving.SERVICES}/{service}"
        with suppress(signed.SignatureError):  # of another stack, as after `train down`
            if content := signed.content_of(store.read(name), name, key):
                facts = json.loads(content)
                _, job = _submit(service, facts["arguments"], outputs, facts["packages"])
                say(f"service {service} is deployed again by job {job}: `train services` lists it")


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


def how_to_ask(service: str, outputs: StackOutputs, sent: str = IMAGES) -> str:
    """Return a command line that sends something; the token is not an argument of a program."""
    token = typed.command(f"train output serveToken --show-secrets -s {outputs.stack}")
    return (
        f"""curl -H @<(printf 'Authorization: Bearer %s' "$({token})") """
        f"{sent} {address(service, outputs)}/predict"
    )


def _check_stored(
    run: str, checkpoint: str | None, outputs: StackOutputs, trust_code: bool
) -> dict[str, Any]:
    """Refuses what the store lacks, or what its records rule out; the job checks the files.

    Returns what the run's own code needs of a runtime environment.
    """
    store = open_store(outputs)
    found = [name for name in store.folders(run) if name.startswith(run_folder.CHECKPOINT)]
    if checkpoint is not None and checkpoint not in found:
        raise ClientError(
            f"run {run!r} has no checkpoint {checkpoint[:80]!r}: "
            f"give one of {', '.join(found) or 'no other run'}"
        )
    jobs = run_folder.whole_records(store.get(f"{run}/{run_folder.JOBS}", MOST_STATE_BYTES))
    if not found and not jobs and history.find_run(store, run) is None:
        raise history.no_run(store, run)
    newest = checkpoint or run_folder.newest_checkpoint(found)
    if why := history.unservable(store, run, newest, jobs):
        raise ClientError(f"run {run!r} cannot be served: {why}")
    key = None if trust_code else signed.derived(outputs.ray_token)
    try:
        own = uploaded.read(store, run, key)
    except JobError as error:
        raise ClientError(str(error)) from None
    return dict(own[1]["packages"]) if own else {}


def _submit(
    service: str, arguments: list[str], outputs: StackOutputs, packages: dict[str, Any]
) -> tuple[JobServer, str]:
    # Not the run's own name: the run may be trained meanwhile. One job a service at a time.
    name = serving.run_of(service)
    request = submission.Request(
        script=DEPLOY,
        arguments=arguments,
        run_name=name,
        runtime_env=submission.runtime_env(None, DEPLOY, name, progress=False) | packages,
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
