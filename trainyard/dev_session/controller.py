"""Ray Train's processes besides the workers: for all jobs, and the runs of `train dev`.

The controller runs in the driver. As an actor it would import PyTorch and Ray again: four seconds
of a processor before each training, and 0.7 GB until its end. It ends with its driver either way.
The actor that synchronizes workers is sent with its code: its process would import Ray Train for
that, another second. Ray 2.60 has no setting for either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ray import cloudpickle
from ray.runtime_context import RuntimeContext
from ray.train.v2._internal import exceptions, util
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.checkpoint import sync_actor
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

if TYPE_CHECKING:
    from ray.train import Result
    from ray.train.v2.api.callback import RayTrainCallback

PICKLER: Any = cloudpickle
SYNCHRONIZER: Any = sync_actor.SynchronizationActor
# Workers do not know its errors as Ray's, then: they look for one in replica groups alone.
SENT = (sync_actor, util, exceptions)


def in_driver() -> None:
    """Has the trainers of this process run their controllers here."""
    if DataParallelTrainer._initialize_and_run_controller.__name__ == _run.__name__:
        return  # a job in a session
    DataParallelTrainer._initialize_and_run_controller = _run  # type: ignore[method-assign,assignment]
    _start_no_idle_actors()
    # Workers get the controller's actor, for `ray.train.get_all_reported_checkpoints` alone.
    RuntimeContext.current_actor = property(lambda _: None)  # type: ignore[assignment]
    start = SYNCHRONIZER._remote

    def started(*arguments: Any, **options: Any) -> Any:
        with sent_with_code():
            return start(*arguments, **options)

    SYNCHRONIZER._remote = started


@contextmanager
def sent_with_code() -> Iterator[None]:
    """Pickles what the actor that synchronizes workers consists of, not the names of modules."""
    with ExitStack() as after:
        for module in SENT:
            PICKLER.register_pickle_by_value(module)
            after.callback(PICKLER.unregister_pickle_by_value, module)
        yield


def _start_no_idle_actors() -> None:
    """Omits two actors that do nothing for a job, at two seconds of processor time each.

    One passes on data sets: a run without Ray Data has none. The other frees the workers' resources
    after a kill of the controller, whose actor it would look for in vain: Ray frees what a job held
    when its driver ends. Ray 2.60 has no setting for either.
    """
    callbacks = DataParallelTrainer._create_default_callbacks

    def needed(trainer: DataParallelTrainer) -> list[RayTrainCallback]:
        idle: tuple[type, ...] = (PlacementGroupCleanerCallback,)
        if not trainer.datasets:
            idle += (DatasetsCallback,)
        return [each for each in callbacks(trainer) if not isinstance(each, idle)]

    DataParallelTrainer._create_default_callbacks = needed  # type: ignore[method-assign,assignment]


def _run(_: DataParallelTrainer, **arguments: Any) -> Result:
    controller = TrainController(**arguments)
    asyncio.run(controller.run())  # type: ignore[no-untyped-call]
    return controller.get_result()
