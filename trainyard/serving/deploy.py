"""Deploys, updates and withdraws services; `train serve` submits this job.

    python -m trainyard.serving.deploy RUN --name first --replicas 1 --cpus 1 --gpus 0 --timeout 300
    python -m trainyard.serving.deploy --name first --stop

Prints each step, and ends when every replica answers; the service stays. Ray Serve is started for
the first service, on the head alone, and ended with the last.
"""

# ruff: noqa: PLC0415, T201 - a job prints; its errors come before the import of Ray

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import urllib3

from trainyard import options
from trainyard.errors import JobError
from trainyard.recorder import JOB_VARIABLE
from trainyard.serving import SERVICES, TOKEN_FILE_VARIABLE, lacking, uploaded
from trainyard.store import signed
from trainyard.store.objects import StorageError, open_url
from trainyard.tracking.run_folder import STORAGE_VARIABLE

if TYPE_CHECKING:
    from ray.serve.schema import ApplicationStatusOverview

HOST_VARIABLE = "TRAINYARD_SERVE_HOST"
PORT_VARIABLE = "TRAINYARD_SERVE_PORT"
GATE_VARIABLE = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
REQUEST_TIMEOUT_S = 120.0
PROBE_TIMEOUT_S = 10.0
POLL_S = 0.5


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments; the client has checked them."""
    p = argparse.ArgumentParser(prog="python -m trainyard.serving.deploy", allow_abbrev=False)
    p.add_argument("run", nargs="?", help="run whose checkpoint to serve")
    p.add_argument("--name", required=True, help="name of the service and its route")
    p.add_argument("--checkpoint", help="checkpoint of the run (default: the newest valid one)")
    p.add_argument("--replicas", default="1", help="N; or MIN:MAX, by load")
    p.add_argument("--cpus", type=float, default=1, help="CPUs of a replica")
    p.add_argument("--gpus", type=float, default=0, help="GPUs of a replica")
    p.add_argument("--timeout", type=float, default=300, help="seconds until all replicas answer")
    p.add_argument("--trust-code", action="store_true", help="serve code of another cluster")
    p.add_argument("--stop", action="store_true", help="withdraw the service")
    return p


def main(arguments: list[str] | None = None) -> None:
    """Runs the job."""
    args = parser().parse_args(arguments)
    try:
        if args.stop:
            _connect()
            stop(args.name)
        else:
            deploy(args)
    except (JobError, StorageError) as error:
        sys.exit(f"error: {error}")


def deploy(args: argparse.Namespace) -> None:
    """Starts the service, or updates it to another checkpoint.

    Raises:
        JobError: the checkpoint is missing, the code is another cluster's, or the replicas find no
            room.
    """
    address = _address()
    storage = os.environ[STORAGE_VARIABLE].rstrip("/")
    key = None if args.trust_code else uploaded.cluster_key()
    own = uploaded.read(open_url(storage), args.run, key) is not None
    checkpoint = _choose(storage, args.run, args.checkpoint, own_code=own)
    print(f"{f'checkpoint {checkpoint}' if checkpoint else 'output'} of run {args.run}", flush=True)
    _connect()
    from ray import serve

    from trainyard.serving.service import ModelReplica

    _start(*address)
    known = args.name in serve.status().applications
    config = {"storage": storage, "run": args.run, "checkpoint": checkpoint}
    config |= {"own_code": own, "trust_code": args.trust_code}
    least, most = options.number_range(args.replicas)
    by_load = {"autoscaling_config": {"min_replicas": least, "max_replicas": most}}
    service = ModelReplica.options(  # type: ignore[attr-defined]  # a class that Serve has wrapped
        **({"num_replicas": least} if least == most else by_load),
        ray_actor_options={"num_cpus": args.cpus, "num_gpus": args.gpus},
        user_config=config,
    )
    target = serve.RunTarget(service.bind(), name=args.name, route_prefix=f"/{args.name}")
    # Not `serve.run`, which waits forever without room.
    serve.run_many([target], wait_for_applications_running=False)
    try:
        _wait(args)
    except JobError:
        if not known:  # a service that never ran must not use room that appears later
            stop(args.name)
        raise
    environment = json.loads(os.environ.get(JOB_VARIABLE, "{}")).get("runtime_env", {})
    packages = {key: environment[key] for key in uploaded.PACKAGES if key in environment}
    # Signed: with its own stack's, `train up` deploys a service that a new head does not have.
    facts = json.dumps({"arguments": sys.argv[1:], "packages": packages}).encode()
    kept = f"{SERVICES}/{args.name}"
    open_url(storage).write(kept, signed.signed(facts, kept, uploaded.cluster_key()))
    print(f"service {args.name} is ready", flush=True)


def stop(name: str) -> None:
    """Withdraws a service, and Ray Serve with the last one.

    Raises:
        JobError: the service does not exist.
    """
    from ray import serve

    if name not in serve.status().applications:
        raise JobError(f"no service is called {name!r}: `train services` lists them")
    open_url(os.environ[STORAGE_VARIABLE].rstrip("/")).delete(f"{SERVICES}/{name}")
    serve.delete(name)
    print(f"service {name} is withdrawn", flush=True)
    if not serve.status().applications:
        serve.shutdown()  # type: ignore[no-untyped-call]
        print("it was the last one: Ray Serve has ended", flush=True)


def _address() -> tuple[str, int]:
    names = (HOST_VARIABLE, PORT_VARIABLE, TOKEN_FILE_VARIABLE)
    missing = [name for name in names if not os.environ.get(name)]
    if missing:
        raise JobError(
            f"this node does not have {', '.join(missing)}, which set where services listen and "
            "who has access: bring the stack up with this version (make up), then serve again"
        )
    return os.environ[HOST_VARIABLE], int(os.environ[PORT_VARIABLE])


def _choose(storage: str, run: str, wanted: str | None, *, own_code: bool = False) -> str:
    """Return the checkpoint to serve; it is read and loaded before a service is changed.

    A run with code of its own may have none: "".
    """
    from trainyard.resume import checkpoint_files

    store = open_url(f"{storage}/{run}")
    found = [name for name, _ in checkpoint_files.valid(store)]
    if wanted is not None and wanted not in found:
        raise JobError(
            f"run {run!r} has no valid checkpoint {wanted!r}: it has {', '.join(found) or 'none'}"
        )
    for name in [wanted] if wanted else found:
        try:
            with tempfile.TemporaryDirectory() as folder:
                manifest = checkpoint_files.fetch(store, name, Path(folder))
                if not own_code and (why := lacking(manifest["model"])):
                    raise JobError(f"run {run!r} cannot be served: {why}")
                checkpoint_files.check_loads(Path(folder), manifest)
        except checkpoint_files.CheckpointError as error:
            print(f"warning: checkpoint {name} is not served: {error}", flush=True)
        else:
            return name
    if own_code and not any(checkpoint_files.candidates(store)):
        return ""
    raise JobError(
        f"run {run!r} has no valid checkpoint with a manifest in {storage}: `train runs` lists the "
        f"runs; `train submit` under --name {run} trains one, or goes on with it"
    )


def _connect() -> None:
    import ray
    from ray import serve  # noqa: F401 - sets the level of its logger

    # The controller's log would drown ours; it is in the dashboard.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    ray.init(logging_level=logging.WARNING, log_to_driver=False)


def _start(host: str, port: int) -> None:
    """Starts Ray Serve on the head, unless it runs."""
    from ray import serve

    try:
        serve.start(
            proxy_location="HeadOnly",
            http_options={"host": host, "port": port, "request_timeout_s": REQUEST_TIMEOUT_S},
            controller_options={
                "runtime_env": {"env_vars": {GATE_VARIABLE: "trainyard.serving.gate.at_proxy"}}
            },
        )
    except Exception as error:
        serve.shutdown()  # type: ignore[no-untyped-call]
        reason = str(error).strip().splitlines()[-1].strip()
        raise JobError(
            f"Ray Serve does not listen at {host}:{port} ({reason}): end the program "
            "that has the port, or choose another servePort and run `make up`"
        ) from None
    here = "127.0.0.1" if host == "0.0.0.0" else host  # noqa: S104 - compared, not bound
    if _status(f"http://{here}:{port}/-/routes") != 401:
        raise JobError(
            f"the Ray Serve at {host}:{port} answers without a token: another job started it; "
            "withdraw its applications and end it (serve.shutdown()), then serve again"
        )


def _status(url: str) -> int:
    try:
        return urllib3.request("GET", url, timeout=PROBE_TIMEOUT_S, retries=False).status
    except urllib3.exceptions.HTTPError:
        return 0


def _wait(args: argparse.Namespace) -> None:
    from ray import serve

    deadline = time.monotonic() + args.timeout
    said = ""
    while True:
        application = serve.status().applications[args.name]
        running, message = _progress(application)
        line = f"{running} of {args.replicas} replicas are ready"
        if line != said:
            said = line
            print(line, flush=True)
        if application.status == "RUNNING":
            return
        if application.status == "DEPLOY_FAILED":
            why = (message.strip().splitlines() or ["Ray does not say why"])[-1].strip()
            raise JobError(f"service {args.name} does not start: {why}")
        if time.monotonic() > deadline:
            raise JobError(
                f"{running} of {args.replicas} replicas of service {args.name} are ready after "
                f"{args.timeout:g} s; {_demand(args)}: stop a job or a service (train list, train "
                f"services), ask for less, or wait longer (--timeout) {message}".rstrip()
            )
        time.sleep(POLL_S)


def _progress(application: ApplicationStatusOverview) -> tuple[int, str]:
    """Return the number of replicas that answer, and Ray's message about the others."""
    from ray.serve.schema import ReplicaState  # type: ignore[attr-defined]

    [deployment] = application.deployments.values() or [None]
    if deployment is None:
        return 0, application.message
    running = deployment.replica_states.get(ReplicaState.RUNNING, 0)
    return running, deployment.message or application.message


def _demand(args: argparse.Namespace) -> str:
    import ray

    free = ray.available_resources()  # type: ignore[no-untyped-call]
    asked = {"CPU": args.cpus, "GPU": args.gpus}
    return "; ".join(
        f"each asks for {name} {amount:g}, and free in the cluster are {free.get(name, 0):g}"
        for name, amount in asked.items()
        if amount
    )


if __name__ == "__main__":
    main()
