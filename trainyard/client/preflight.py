"""The checks before anything is sent; all faults go into one message."""

from __future__ import annotations

import copy
import importlib.metadata
import sys
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from trainyard.access import parallel, typed
from trainyard.client import disks, health, package, runtimes
from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.package import Packed

if TYPE_CHECKING:
    from trainyard.client.job_server import JobServer

BUCKET_DEADLINE_S = 4.5


def check_versions(outputs: StackOutputs) -> None:
    """Refuses a client whose Ray or Python differs from the nodes'.

    A client without Ray sends files only, and pickles nothing: any version of Python will do.

    Raises:
        ClientError: naming both versions.
    """
    try:
        ray = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return
    mine = {
        "Ray": (ray, outputs.ray_version),
        "Python": (f"{sys.version_info.major}.{sys.version_info.minor}", outputs.python_version),
    }
    wrong = [
        f"{name} {here} here, {there} there"
        for name, (here, there) in mine.items()
        if here != there
    ]
    if wrong:
        raise ClientError(
            f"this client and stack {outputs.stack!r} do not match ({'; '.join(wrong)}): "
            + (
                "install these versions here, or attach the cluster again if it has changed"
                if outputs.attached
                else "run `make setup` in the checkout that brought the stack up, then `make up`; "
                "another Python is chosen with "
                f"`make setup PYTHON=python{outputs.python_version}`"
            )
        )


def check_runtime_env(runtime_env: dict[str, Any], outputs: StackOutputs) -> Packed:
    """Refuses what Ray would, secrets that the dashboard would show, and uploads that cannot go.

    Returns:
        The upload.

    Raises:
        ClientError: naming the key, the variable or the files.
    """
    for name, value in runtime_env.get("env_vars", {}).items():
        if any(secret in str(value) for secret in outputs.secrets):
            raise ClientError(
                f"environment variable {name} of the runtime environment holds a secret of the "
                "stack, which the dashboard would show: leave it out, the nodes have what they need"
            )
    packed = package.packages(runtime_env, outputs.secrets)
    whole = runtimes.with_files(runtime_env)
    try:
        from ray.runtime_env import RuntimeEnv  # noqa: PLC0415 - slow
    except ModuleNotFoundError:  # a client without Ray: the job tells what the nodes refuse
        return packed
    try:
        RuntimeEnv(**copy.deepcopy(whole))
    except (OSError, TypeError, ValueError) as error:
        raise ClientError(
            f"the runtime environment is not one of Ray's: {error}; mend it, then submit again"
        ) from None
    return packed


def check_bucket(outputs: StackOutputs) -> None:
    """Puts, gets and deletes a marker in the store, if there is one that this machine reaches.

    Raises:
        ClientError: one of the three failed, or took too long.
    """
    if outputs.keeps_files_away or not outputs.storage_url:
        return

    def work() -> None:
        from trainyard.client import store  # noqa: PLC0415 - slow

        store.check(store.open_store(outputs))

    try:
        # No timeout of the S3 client covers a name server that does not answer.
        parallel.start(work).result(BUCKET_DEADLINE_S)
    except FutureTimeoutError:
        raise ClientError(
            f"{outputs.storage_url} at {outputs.object_store_endpoint} gave no answer within "
            f"{BUCKET_DEADLINE_S} s: is the object store up, and its address right? "
            f"{health.remedy(outputs)}"
        ) from None


def run(
    runtime_env: dict[str, Any],
    run_name: str,
    outputs: StackOutputs,
    owner: str = "",
) -> tuple[JobServer, Packed]:
    """Runs the slow checks side by side, and packs the upload.

    Args:
        runtime_env: of the job.
        run_name: must have no active job; "" for no run.
        outputs: of the stack.
        owner: user who must have submitted the run's newest job, "" for any.

    Returns:
        The job server, and the upload.

    Raises:
        ClientError: listing every fault.
    """
    checks: list[Future[Any]] = [
        parallel.start(_connect_for, run_name, outputs, owner),
        parallel.start(check_versions, outputs),
        parallel.start(check_bucket, outputs),
        parallel.start(disks.known, outputs),
        parallel.start(check_runtime_env, runtime_env, outputs),
    ]
    faults = []
    for check in checks:
        try:
            check.result()
        except ClientError as error:
            faults.append(str(error))
    if faults:
        raise ClientError("\n".join(faults))
    packed = checks[-1].result()
    disks.check_room(checks[-2].result(), packed)
    return checks[0].result(), packed


def _connect_for(run_name: str, outputs: StackOutputs, owner: str) -> JobServer:
    from trainyard.client import jobs  # noqa: PLC0415 - slow

    server = jobs.connect(outputs)
    of_run = [job for job in jobs.submissions(server) if run_name and job.run == run_name]
    for job in of_run:
        if not job.status.ended:
            raise ClientError(
                f"run {run_name!r} is being trained by job {job.submission_id} ({job.status}): "
                f"follow it (`train logs -f {typed.argument(job.submission_id)}`), stop it, or "
                "take another --name"
            )
    if owner and of_run and (other := of_run[0].user) not in ("", owner):
        raise ClientError(
            f"run {run_name!r} was last trained by {other}, not by {owner}: take another --name, "
            "or go on with that run with --force"
        )
    return server
