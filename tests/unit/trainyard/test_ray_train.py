"""The settings of every job's driver, and its messages when training fails."""

import asyncio
import json
import logging
import os
import pickle
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import ray
import torch
from ray.air._internal import device_manager
from ray.train import (
    Checkpoint,
    CheckpointConfig,
    ControllerError,
    RunConfig,
    WorkerGroupError,
)
from ray.train.torch.config import _TorchBackend
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
from ray.train.v2._internal.execution.checkpoint.checkpoint_manager import CheckpointManager
from ray.train.v2._internal.execution.training_report import _TrainingReport

from trainyard import ray_train
from trainyard.client.log_writer import RANK
from trainyard.counted_gpus import torch_config
from trainyard.dev_session import controller
from trainyard.errors import JobError
from trainyard.resume import controller_log
from trainyard.resume.controller_files import LIST, ControllerFiles
from trainyard.store import objects
from trainyard.store.objects import StorageError
from trainyard.tracking.runs import Run


@pytest.fixture
def started(monkeypatch) -> list[dict[str, Any]]:
    """The arguments of each ray.init; the environment is put back afterwards."""
    for name in ray_train.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(controller, "in_driver", Mock())
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "init", lambda **arguments: calls.append(arguments))
    return calls


def test_the_driver_and_the_workers_get_the_settings(started):
    os.environ["RAY_ADDRESS"] = "127.0.0.1:1"
    ray_train.connect()
    [call] = started
    expected = ray_train.SETTINGS | {"RAY_ADDRESS": "127.0.0.1:1"}
    assert call["runtime_env"]["env_vars"] == expected
    assert all(os.environ[name] == value for name, value in ray_train.SETTINGS.items())
    assert call["logging_level"] == logging.WARNING  # Ray does not tell that it is connected
    filters = logging.getLogger(controller_log.LOGGER).filters
    assert any(isinstance(each, controller_log.LateAnswers) for each in filters)


def test_an_address_that_the_jobs_environment_has_is_not_sent_twice(started):
    os.environ["RAY_ADDRESS"] = "127.0.0.1:1"
    given = {"runtime_env": {"env_vars": {"RAY_ADDRESS": "127.0.0.1:1"}}}
    os.environ[ray_train.JOB_VARIABLE] = json.dumps(given)
    ray_train.connect()
    assert "RAY_ADDRESS" not in started[0]["runtime_env"]["env_vars"]


def test_a_setting_of_the_job_stays_and_is_not_sent_twice(started):
    name = "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S"
    os.environ[name] = "900"
    ray_train.connect()
    assert os.environ[name] == "900"
    assert name not in started[0]["runtime_env"]["env_vars"]  # Ray refuses to merge what differs


def test_a_setup_hook_of_the_user_stays(started):
    job = {"runtime_env": {"worker_process_setup_hook": "mine.hook"}}
    os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"] = json.dumps(job)
    ray_train.connect()
    assert "worker_process_setup_hook" not in started[0]["runtime_env"]  # Ray would refuse two


@pytest.mark.parametrize(
    ("use_gpu", "resources", "backend"),
    [
        (True, {"GPU": 2.0, "accelerator_type:A10": 1.0}, "nccl"),
        (True, {"GPU": 2.0}, None),  # the workers find out
        (False, {"GPU": 2.0, "accelerator_type:A10": 1.0}, "gloo"),
    ],
)
def test_nccl_is_for_gpus_that_are_there(use_gpu, resources, backend, monkeypatch):
    monkeypatch.setattr(ray, "cluster_resources", lambda: resources)
    assert torch_config(use_gpu=use_gpu).backend == backend


@pytest.mark.parametrize(
    ("found", "backend"), [([True, True], "nccl"), ([True, False], "gloo"), ([False], "gloo")]
)
def test_workers_of_nodes_that_were_not_known_find_their_gpus(found, backend, monkeypatch):  # A30
    began: list[Any] = []
    monkeypatch.setattr(_TorchBackend, "on_start", lambda _, __, config: began.append(config))
    monkeypatch.setattr(ray, "cluster_resources", dict)
    config = torch_config(use_gpu=True)
    group: Any = SimpleNamespace(execute=lambda _: found)
    config.backend_cls().on_start(group, config)
    assert [each.backend for each in began] == [backend]
    for is_there in {*found}:
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=is_there: there)
        monkeypatch.setattr(device_manager, "_torch_device_manager", None)
        with config.train_func_context():
            assert (device_manager._torch_device_manager is None) is is_there


@pytest.mark.parametrize(
    ("declared", "expected"),
    [("", 1.0), ("[]", 1.0), ('[{"GPU": 1}]', 1.0), ('[{"GPU": 1}, {"GPU": 1.0}]', 2)],
)
def test_gpus_of_nodes_that_wait_for_demand_count(declared, expected, monkeypatch):
    if declared:
        monkeypatch.setenv("TRAINYARD_NODES", declared)
    alive = [(True, {"CPU": 8.0}), (True, {"CPU": 8.0, "GPU": 1.0}), (False, {"GPU": 4.0})]
    nodes = [{"Alive": lives, "Resources": found} for lives, found in alive]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert sum(node.get("GPU", 0) for node in ray_train.nodes()) == expected


class Away:
    """A store that answers nothing."""

    type_name = "s3"
    region = "us-east-1"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.fail

    def fail(self, *_: object) -> None:
        raise OSError("AWS Error NETWORK_CONNECTION")


def test_the_controller_needs_no_store():  # F22
    files = ControllerFiles(Away())
    with pytest.raises(OSError, match="NETWORK"):
        files.get_file_info("ray/first/metrics.jsonl")
    config: Any = RunConfig(name="first", storage_path="ray", storage_filesystem=files)
    storage = pickle.loads(pickle.dumps(config.storage_context))
    there = storage.storage_filesystem
    assert objects.open_folder(there, "ray/first").where == "s3://ray/first"

    async def report(manager: CheckpointManager) -> Any:
        checkpoint = Checkpoint("ray/first/checkpoint_000001", there)
        manager.after_report(_TrainingReport(checkpoint, {"loss": 1.0}, False), [{"loss": 1.0}])
        return manager.latest_checkpoint_result

    result = asyncio.run(report(CheckpointManager(CheckpointConfig(), storage)))
    assert result.metrics == {"loss": 1.0}
    with there.open_input_stream(f"ray/first/{LIST}") as stream:
        assert b"checkpoint_000001" in stream.readall()


def test_a_list_of_checkpoints_that_are_gone_does_not_stop_ray(tmp_path):
    run = Run(tmp_path.as_uri(), "first")
    run.write(LIST, b"{}")
    run.write("metrics.jsonl", b"")
    config: Any = ray_train.run_config(run, 2)
    assert (config.name, config.failure_config.max_failures) == ("first", 2)
    CheckpointManager(CheckpointConfig(), config.storage_context)  # it would fail at this list
    with config.storage_filesystem.open_input_stream(f"{tmp_path}/first/metrics.jsonl") as stream:
        assert stream.readall() == b""
    ray_train.forget_checkpoints(run.storage, run.name)
    assert [path.name for path in (tmp_path / "first").iterdir()] == ["metrics.jsonl"]


def failed(rank: int, error: Exception) -> dict[int, Exception]:
    lines = f"Traceback (most recent call last):\n  ...\n{type(error).__module__}."
    return {rank: UserExceptionWithTraceback(error, f"{lines}{type(error).__name__}: {error}\n")}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            WorkerGroupError(
                "two", {0: RuntimeError("A\npeer closed")} | failed(1, StorageError("no store"))
            ),
            "no store",
        ),
        (WorkerGroupError("one", {0: StorageError("no store")}), "no store"),
        (
            WorkerGroupError("one", failed(1, ValueError("3 is odd"))),
            (
                "worker 1 failed once more than --max-failures: builtins.ValueError: 3 is odd; the "
                "log above has more; submitted again under the same --name the run goes on from "
                "its last checkpoint"
            ),
        ),
        (
            ControllerError(OSError("AWS Error NETWORK_CONNECTION")),
            (
                "Ray Train's controller failed: AWS Error NETWORK_CONNECTION; the log above has "
                "more; submitted again under the same --name the run goes on from its last "
                "checkpoint"
            ),
        ),
        # A user can mend these.
        (ControllerError(JobError("do this")), "do this"),
        (WorkerGroupError("a", failed(0, JobError("do this"))), "do this"),
    ],
)
def test_a_failure_is_one_line(error, message):
    assert str(ray_train.failure(error)) == message


def test_the_log_tells_which_process_has_which_rank(capsys):
    process = SimpleNamespace(node_ip="10.0.0.5", pid=7)
    group: Any = SimpleNamespace(get_workers=lambda: [SimpleNamespace(metadata=process)] * 2)
    ray_train.Ranks().after_worker_group_training_start(group)
    told = [RANK.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
    assert [found and found.groups() for found in told] == [
        ("10.0.0.5", "7", "0"),
        ("10.0.0.5", "7", "1"),
    ]
