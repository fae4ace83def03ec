"""What a job of Ray Train or Tune does the same way as every other: connect, configure, end.

Nothing here is of one model or one data set.
"""

# ruff: noqa: PLC0415 - the client imports jobs, and with them this, without torch and Ray

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training import controller_log
from training.objects import StorageError, open_url
from training.run_folder import RUN_VARIABLE, STORAGE_VARIABLE
from training.runs import Run

if TYPE_CHECKING:
    from ray.train import Result, RunConfig, TrainingFailedError
    from ray.train.torch import TorchConfig, TorchTrainer

# Those of them that the job's runtime environment sets stay as they are.
SETTINGS = {
    # Ray Train would log each printed line beside printing it.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # It watches for preempted machines, which no host of ours announces, and costs a process and
    # an error line a run.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    # Ray Data would print its plan, and where its own log is, once an epoch.
    "RAY_DATA_LOG_LEVEL": "WARNING",
    # At Ray's 2 s a lost worker is noticed, and a run ends, up to as much later.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",
    # A worker that hangs is given up after this, not after Ray's 10 minutes. Another thread than
    # the one that trains answers, so that long steps do no harm unless they keep Python's lock.
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "30",
    # Ray Train asks a worker that hangs to leave its process group, and waits 30 s for it.
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "5",
    # By itself glibc raises the size from which a block is mapped, and given back when it is freed,
    # to 32 MiB; below it the blocks of a step leave holes, and a worker on CPUs grows step by step.
    "MALLOC_MMAP_THRESHOLD_": str(4 * 1024**2),
}
HOOK = "worker_process_setup_hook"  # one that the user's runtime environment has stays
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # of Ray: the job's own runtime environment
SNAPSHOT = "checkpoint_manager_snapshot.json"
RESUME = (
    "the log above has more; submitted again under the same --name the run goes on from its last "
    "checkpoint"
)


def connect() -> None:
    """Sets what Ray Train reads from the environment, and connects to the job's cluster."""
    ours = {name: value for name, value in SETTINGS.items() if name not in os.environ}
    os.environ.update(ours)
    if not sys.stdout.isatty():
        os.environ.setdefault("RAY_COLOR_PREFIX", "0")
    # Before there are Ray's threads: beside them MKL's library fails to load now and then, and the
    # process ends with it.
    import ray
    import torch  # noqa: F401

    # Ray Train's helpers look their cluster up, and stop at a second one on the same machine.
    ours |= {k: v for k, v in os.environ.items() if k == "RAY_ADDRESS"}
    env: dict[str, Any] = {"env_vars": ours}
    if HOOK not in json.loads(os.environ.get(JOB_VARIABLE, "{}")).get("runtime_env", {}):
        env[HOOK] = f"{controller_log.__name__}.{controller_log.shorten.__name__}"
    # Ray tells otherwise three times that it is connected, between the lines of the job.
    ray.init(runtime_env=env, logging_level=logging.WARNING)


def torch_config(*, use_gpu: bool) -> TorchConfig:
    """How workers talk to each other: NCCL between GPUs, gloo where GPUs are only counted.

    Args:
        use_gpu: the workers ask for GPUs. A node may have been told to count some that are not
            there; Ray knows the kind of those that are.
    """
    import ray
    from ray.train.torch import TorchConfig

    real = any(name.startswith("accelerator_type:") for name in ray.cluster_resources())  # type: ignore[no-untyped-call]
    if use_gpu and not real:
        from training.counted_gpus import CountedGpus

        return CountedGpus(backend="gloo")
    return TorchConfig(backend="nccl" if use_gpu else "gloo")


def run_config(storage: str, name: str, max_failures: int) -> RunConfig:
    """Of a run whose checkpoints are those of training/checkpoints.py.

    Ray's own list of earlier checkpoints is removed: Ray stops at the first that is gone, and
    which are there, and valid, is read from the store.

    Args:
        storage: s3://bucket[/prefix] or file:///folder.
        name: the run's name.
        max_failures: how often lost workers are started again.
    """
    from ray.train import FailureConfig, LoggingConfig, RunConfig

    _forget_checkpoints(storage, name)
    return RunConfig(  # type: ignore[call-arg]  # typed as that of Train V1
        name=name,
        storage_path=storage,
        failure_config=FailureConfig(max_failures=max_failures),
        logging_config=LoggingConfig(log_level="WARNING"),
    )


def fit(trainer: TorchTrainer) -> Result:
    """Trains to the end; ends the job with one line when that fails.

    Ray Train starts lost workers again; here its controller is, which fails when the store does
    not take its list of checkpoints.
    """
    from ray.train import ControllerError, TrainingFailedError

    config: Any = trainer.run_config  # Train V2 fills in what is not given
    starts_left = config.failure_config.max_failures
    while True:
        try:
            return trainer.fit()
        except TrainingFailedError as error:
            if not isinstance(error, ControllerError) or starts_left < 1:
                sys.exit(f"error: {_reason(error)}")
            starts_left -= 1
            print(f"warning: training starts again: {_reason(error)}", flush=True)  # noqa: T201
        if config.checkpoint_config.num_to_keep is None:  # else Ray removes checkpoints, and knows
            _forget_checkpoints(config.storage_path, config.name)


def open_run(job: str) -> Run:
    """The run that the client named; without one a run of its own, as for `ray job submit`.

    Ends the job with one line where what the run has in the store cannot be read.
    """
    storage = os.environ.get(STORAGE_VARIABLE) or (Path.home() / "ray_results").as_uri()
    unique = f"{job}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    run = Run(storage, os.environ.get(RUN_VARIABLE) or unique)
    try:
        run.config()
    except StorageError as error:
        sys.exit(f"error: {error}")
    return run


def shared_fault(fault: str) -> str:
    """The fault of any worker, on all workers alike; "" where none has one. Each worker calls it.

    Raised, Ray Train would start the workers again, only to see the same; and the others would
    wait for the one that ended.
    """
    from torch import distributed

    faults = [""] * distributed.get_world_size()
    distributed.all_gather_object(faults, fault)
    return max(faults)


def _forget_checkpoints(storage: str, name: str) -> None:
    """Removes Ray's list of a run's checkpoints; ends the job when the store stays away."""
    try:
        open_url(f"{storage}/{name}").delete(SNAPSHOT)
    except StorageError as error:
        sys.exit(f"error: {error}")


def _reason(error: TrainingFailedError) -> str:
    """One line on why training failed; what the store says needs nothing beside it."""
    failures = getattr(error, "worker_failures", None)
    if not failures:
        line = str(error).strip().splitlines()[-1]
        return f"Ray Train's controller failed: {line}; {RESUME}"
    mark = f"{StorageError.__name__}: "
    for failure in failures.values():
        if isinstance(failure, StorageError):
            return str(failure)
        # Ray hands on what a traceback says.
        said = [line for line in str(failure).splitlines() if mark in line]
        if said:
            return said[-1].partition(mark)[2]
    lines = {rank: str(failure).strip().splitlines()[-1] for rank, failure in failures.items()}
    rank, line = min(lines.items())
    return f"worker {rank} failed once more than --max-failures: {line}; {RESUME}"
