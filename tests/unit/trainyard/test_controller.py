"""Ray Train's controller runs here, and the process that synchronizes workers imports little."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray import cloudpickle
from ray.runtime_context import RuntimeContext
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from trainyard.dev_session import controller
from trainyard.dev_session.controller import SYNCHRONIZER


@pytest.fixture(autouse=True)
def _put_back(monkeypatch):
    for owner, name in (
        (DataParallelTrainer, "_initialize_and_run_controller"),
        (DataParallelTrainer, "_create_default_callbacks"),
        (RuntimeContext, "current_actor"),
        (SYNCHRONIZER, "_remote"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))


@pytest.mark.parametrize("datasets", [{}, {"train": None}])
def test_actors_that_would_do_nothing_are_not_started(datasets, monkeypatch):
    name, manager = "_create_default_callbacks", DatasetsCallback.__new__(DatasetsCallback)
    all_of_them = ["another", manager, PlacementGroupCleanerCallback()]
    monkeypatch.setattr(DataParallelTrainer, name, lambda _: all_of_them)
    controller.in_driver()
    trainer: Any = SimpleNamespace(datasets=datasets)
    left = DataParallelTrainer._create_default_callbacks(trainer)
    assert left == (["another", manager] if datasets else ["another"])


def test_the_controller_runs_in_the_driver_however_often_that_is_asked_for(monkeypatch):
    start = Mock(return_value="an actor")
    monkeypatch.setattr(SYNCHRONIZER, "_remote", start)
    controller.in_driver()
    controller.in_driver()

    class Controller:
        def __init__(self, **arguments: Any) -> None:
            self.arguments = arguments

        async def run(self) -> None:
            self.arguments["ran"] = True

        def get_result(self) -> dict[str, Any]:
            return self.arguments

    monkeypatch.setattr(controller, "TrainController", Controller)
    trainer: Any = SimpleNamespace()
    ran = DataParallelTrainer._initialize_and_run_controller(trainer, asked=1)
    assert ran == {"asked": 1, "ran": True}
    assert SYNCHRONIZER._remote(args=(1,)) == "an actor"
    start.assert_called_once_with(args=(1,))


def test_the_process_that_synchronizes_workers_does_without_ray_train():
    actor = SYNCHRONIZER.__ray_metadata__.modified_class
    with controller.sent_with_code():
        content = cloudpickle.dumps(actor)
    code = (
        "import pickle, sys\n"
        "made = pickle.load(sys.stdin.buffer)(timeout_s=1)\n"
        "print(type(made).__name__, 'ray.train' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, input=content, capture_output=True
    )
    assert done.stdout.split() == [b"SynchronizationActor", b"False"], done.stderr
