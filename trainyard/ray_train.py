"""Ray Train for all jobs: connect, configure, train to the end.

Nothing here depends on a model or data set, or needs PyTorch before `connect`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import ray
from ray.train import FailureConfig, LoggingConfig, RunConfig, TrainingFailedError
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.worker_group import WorkerGroup

from trainyard import options
from trainyard.dev_session import controller
from trainyard.errors import JobError
from trainyard.resume import controller_log, hangs
from trainyard.resume.controller_files import LIST
from trainyard.resume.lost_workers import LostWorkers, job_error
from trainyard.store.objects import StorageError, open_url
from trainyard.tracking.run_folder import NODES_VARIABLE

if TYPE_CHECKING:
    from trainyard.tracking.runs import Run

# The job's runtime environment takes precedence.
SETTINGS = {
    # Ray Train would also log each printed line.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # The watch for nodes that must go runs in the first worker (trainyard/resume/notices.py): Ray
    # Train would start it with an extra process and an error line for each run.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    # Ray Data would print its plan and its log's path once per epoch.
    "RAY_DATA_LOG_LEVEL": "WARNING",
    # With Ray's 2 s, lost workers and the end of a run are noticed up to 2 s late.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",
    # A worker that hangs is given up after this, not after Ray's 10 minutes. A thread other than
    # the training one answers, so long steps do no harm unless they hold Python's lock.
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "30",
    # Ray Train asks a worker that hangs to leave its process group, and waits 30 s for it.
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "5",
}
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # of Ray: the job's own runtime environment
RESUME = (
    "the log above has more; submitted again under the same --name the run goes on from its last "
    "checkpoint"
)


def connect() -> None:
    """Sets Ray Train's environment variables, and connects to the job's cluster."""
    ours = {name: value for name, value in SETTINGS.items() if name not in os.environ}
    os.environ.update(ours)
    if not sys.stdout.isatty():
        os.environ.setdefault("RAY_COLOR_PREFIX", "0")
    # Before Ray's threads start: with them MKL's library sometimes fails to load, which ends the
    # process.
    import torch  # noqa: F401, PLC0415

    controller.in_driver()
    controller_log.shorten()
    jobs = json.loads(os.environ.get(JOB_VARIABLE, "{}")).get("runtime_env", {})
    # Ray Train's helpers look up their cluster, and fail if the machine has two. The recorder of a
    # job has told it, and Ray refuses a variable that a job's environment has already.
    if "RAY_ADDRESS" in os.environ and "RAY_ADDRESS" not in jobs.get("env_vars", {}):
        ours["RAY_ADDRESS"] = os.environ["RAY_ADDRESS"]
    # Otherwise Ray reports three times that it is connected, between the job's lines.
    ray.init(runtime_env={"env_vars": ours}, logging_level=logging.WARNING)


def resources(config: options.Config) -> list[dict[str, float]]:
    """Return `options.workers` for the nodes of this cluster, after `connect`.

    A line says which GPUs a training on CPUs leaves idle.
    """
    here = nodes()
    if idle := options.idle_gpus(config, here):
        print(idle, flush=True)  # noqa: T201 - a job prints
    return options.workers(config, here)


def nodes() -> list[dict[str, float]]:
    """Return what each node offers, by Ray's names.

    Nodes that wait for demand, or to come back, are known to the client and to a head with an
    autoscaler: what they declare counts where it has more GPUs than the nodes that are alive.
    """
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    declared: list[dict[str, float]] = json.loads(os.environ.get(NODES_VARIABLE, "[]"))
    return max(alive, declared, key=lambda each: sum(node.get("GPU", 0) for node in each))


def run_config(run: Run, max_failures: int, hang_minutes: float = hangs.MINUTES) -> RunConfig:
    """Return Ray's configuration of a run, with the checkpoints of trainyard/resume."""
    callbacks: Any = [LostWorkers(max_failures), Ranks(), hangs.Hangs(run.url, hang_minutes)]
    return RunConfig(  # type: ignore[call-arg]  # typed as that of Train V1
        name=run.name,
        storage_path=run.storage_path,
        storage_filesystem=run.files,
        failure_config=FailureConfig(max_failures=max_failures),
        logging_config=LoggingConfig(log_level="WARNING"),
        callbacks=callbacks,
    )


class Ranks(WorkerGroupCallback):
    """Tells `train logs` which process is the worker of which rank, as Ray Train's own log does."""

    def after_worker_group_training_start(self, worker_group: WorkerGroup) -> None:
        """Prints a line for each worker."""
        for rank, worker in enumerate(worker_group.get_workers()):
            process = worker.metadata
            print(f"- (ip={process.node_ip}, pid={process.pid}) world_rank={rank}", flush=True)  # noqa: T201


def forget_checkpoints(storage: str, name: str) -> None:
    """Removes Ray's list of a run's checkpoints: Ray stops at the first that is missing.

    Raises:
        StorageError: the store stays unavailable.
    """
    open_url(f"{storage}/{name}").delete(LIST)


def failure(error: TrainingFailedError) -> JobError:
    """Return one line on why training failed; errors of the store and of jobs are shown alone."""
    return JobError(_reason(error))


def _reason(error: TrainingFailedError) -> str:
    failures = getattr(error, "worker_failures", None)
    if not failures:
        fault = getattr(error, "controller_failure", error)
        if isinstance(fault, JobError):
            return str(fault)
        line = str(error).strip().splitlines()[-1]
        return f"Ray Train's controller failed: {line}; {RESUME}"
    marks = [f"{each.__name__}: " for each in (StorageError, JobError)]
    for failed in failures.values():
        if isinstance(failed, StorageError):
            return str(failed)
        if fault := job_error(failed):
            return str(fault)
        # Ray passes on a traceback's text.
        text = str(failed).splitlines()
        if said := [line.partition(mark)[2] for line in text for mark in marks if mark in line]:
            return said[-1]
    lines = {rank: str(failed).strip().splitlines()[-1] for rank, failed in failures.items()}
    rank, line = min(lines.items())
    return f"worker {rank} failed once more than --max-failures: {line}; {RESUME}"
