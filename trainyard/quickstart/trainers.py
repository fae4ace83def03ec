"""Ray's trainer and tuner, whose `fit` runs on a box and brings the results here."""

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import ray.train.torch
import ray.tune
from ray.train.constants import DEFAULT_STORAGE_PATH

from trainyard.client.errors import ClientError
from trainyard.quickstart import on_box
from trainyard.quickstart.on_stack import StackSyncer
from trainyard.quickstart.syncer import Syncer
from trainyard.tracking import run_folder

AnySyncer: TypeAlias = Syncer | StackSyncer


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """The outcome of a training, or of a trial."""

    metrics: dict[str, Any]  # the last that were reported
    folder: Path  # of the results, on this machine
    checkpoint: Path | None  # folder of the last one, on this machine; None without one
    fault: str  # why a trial failed, "" if it did not


class OnBox:
    """One of Ray's classes with a `fit`. It is created where it runs: on the box.

    Attributes:
        kind: Ray's class.
    """

    kind: ClassVar[type[Any]]

    def __init__(self, *arguments: Any, run_config: Any, **options: Any) -> None:
        self._arguments = arguments
        self._options = options
        self._run_config = run_config

    def _fit(self, syncer: AnySyncer | None, *, clean_trials: bool) -> list[TrainingOutcome]:
        try:
            name = run_folder.check_name(self._run_config.name or "")
        except ValueError as error:
            raise ClientError(f"run_config: {error}") from None
        run_config = copy.copy(self._run_config)
        options = {**self._options, "run_config": run_config}
        if syncer is None:
            storage = Path(run_config.storage_path or DEFAULT_STORAGE_PATH).expanduser()
            run_config.storage_path = str(storage)
            if clean_trials:
                shutil.rmtree(storage / name, ignore_errors=True)
            return _outcomes(on_box.fit(self.kind, self._arguments, options), storage, storage)
        run_config.storage_path = syncer.there
        if clean_trials:
            syncer.clean(name)
        results = syncer.run(name, self.kind, self._arguments, options)
        there = Path(syncer.there) if isinstance(syncer, Syncer) else Path()
        return _outcomes(results, there, syncer.here)


class Synced(OnBox):
    """A trainer of Ray on a box. For another one derive a class: `kind = LightGBMTrainer`."""

    def fit(self, syncer: AnySyncer | None, *, clean_trials: bool = False) -> TrainingOutcome:
        """Trains on the box, and brings the results here meanwhile and at the end.

        Args:
            syncer: of `initialize_ray_with_syncer`: a box or a stack. None trains on this machine.
            clean_trials: removes earlier results of the run first, on both machines.

        Raises:
            ClientError: the training failed, or its results could not be fetched.
        """
        return self._fit(syncer, clean_trials=clean_trials)[0]


class TorchTrainer(Synced):
    """`ray.train.torch.TorchTrainer` on a box."""

    kind = ray.train.torch.TorchTrainer


class Tuner(OnBox):
    """`ray.tune.Tuner` on a box."""

    kind = ray.tune.Tuner

    def fit(self, syncer: AnySyncer | None, *, clean_trials: bool = False) -> list[TrainingOutcome]:
        """Tunes on the box; arguments and errors as for a trainer.

        Returns:
            One outcome for each trial.
        """
        return self._fit(syncer, clean_trials=clean_trials)


def _outcomes(results: list[on_box.Result], there: Path, here: Path) -> list[TrainingOutcome]:
    """The results of the box, with the paths of this machine."""

    def local_path(path: str) -> Path:
        return here / Path(path).relative_to(there)

    return [
        TrainingOutcome(
            metrics=metrics,
            folder=local_path(folder),
            checkpoint=local_path(checkpoint) if checkpoint else None,
            fault=fault,
        )
        for metrics, folder, checkpoint, fault in results
    ]
