"""Ray Train as all jobs use it: connect, configure, train to the end.

Nothing here is of one model or one data set, or needs PyTorch before `connect`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import ray
from ray.train import (
    ControllerError,
    FailureConfig,
    LoggingConfig,
    Result,
    RunConfig,
    TrainingFailedError,
)
from ray.train.v2._internal.callbacks import DatasetsCallback

from training import controller_log
from training.errors import JobError
from training.lost_workers import LostWorkers
from training.objects import StorageError, open_url

if TYPE_CHECKING:
    from ray.train.torch import TorchTrainer

# Those of them that the job's runtime environment sets stay as they are.
SETTINGS = {
    # Ray Train would log each printed line beside printing it.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # Its watch for nodes that are to go runs in the first worker (training/notices.py): as Ray
    # Train starts it, it costs a process and an error line a run.
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
    import torch  # noqa: F401, PLC0415

    # Ray Train's helpers look their cluster up, and stop at a second one on the same machine.
    ours |= {k: v for k, v in os.environ.items() if k == "RAY_ADDRESS"}
    env: dict[str, Any] = {"env_vars": ours}
    if HOOK not in json.loads(os.environ.get(JOB_VARIABLE, "{}")).get("runtime_env", {}):
        env[HOOK] = f"{controller_log.__name__}.{controller_log.shorten.__name__}"
    # Ray tells otherwise three times that it is connected, between the lines of the job.
    ray.init(runtime_env=env, logging_level=logging.WARNING)


def run_config(storage: str, name: str, max_failures: int) -> RunConfig:
    """Of a run whose checkpoints are those of training/checkpoints.py.

    Ray's own list of earlier checkpoints is removed: Ray stops at the first that is gone, and
    which are there, and valid, is read from the store.

    Args:
        storage: s3://bucket[/prefix] or file:///folder.
        name: the run's name.
        max_failures: how often lost workers are started again.

    Raises:
        StorageError: the store stays away.
    """
    _forget_checkpoints(storage, name)
    return RunConfig(  # type: ignore[call-arg]  # typed as that of Train V1
        name=name,
        storage_path=storage,
        failure_config=FailureConfig(max_failures=max_failures),
        logging_config=LoggingConfig(log_level="WARNING"),
        callbacks=[LostWorkers(max_failures)],  # type: ignore[list-item]  # as above
    )


def fit(trainer: TorchTrainer) -> Result:
    """Trains to the end.

    Ray Train starts lost workers again; here its controller is, which fails when the store does
    not take its list of checkpoints.

    Raises:
        JobError: the training failed.
        StorageError: the store stays away.
    """
    config: Any = trainer.run_config  # Train V2 fills in what is not given
    starts_left = config.failure_config.max_failures
    if not trainer.datasets:
        _start_no_manager_of_datasets(trainer)
    while True:
        try:
            return trainer.fit()
        except TrainingFailedError as error:
            if not isinstance(error, ControllerError) or starts_left < 1:
                raise JobError(_reason(error)) from None
            starts_left -= 1
            print(f"warning: training starts again: {_reason(error)}", flush=True)  # noqa: T201
        if config.checkpoint_config.num_to_keep is None:  # else Ray removes checkpoints, and knows
            _forget_checkpoints(config.storage_path, config.name)


def _start_no_manager_of_datasets(trainer: Any) -> None:
    """Leaves an actor out that hands on what a run without Ray Data has none of.

    Ray Train starts it with the workers, each time: two seconds of processor time, for which Ray
    2.60 has no setting.
    """
    callbacks = trainer._create_default_callbacks

    def without_datasets() -> list[Any]:
        return [each for each in callbacks() if not isinstance(each, DatasetsCallback)]

    trainer._create_default_callbacks = without_datasets


def _forget_checkpoints(storage: str, name: str) -> None:
    """Removes Ray's list of a run's checkpoints."""
    open_url(f"{storage}/{name}").delete(SNAPSHOT)


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
