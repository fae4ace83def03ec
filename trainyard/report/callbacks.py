"""Lightning callbacks that report each epoch to Ray, with a checkpoint that is safe to resume from.

They take the place of Ray's own RayTrainReportCallback: its checkpoints have no manifest to tell
whole ones by, and its runs lose the order of the images, the patience and the rates when they
resume.
"""

import logging
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from lightning import Trainer
from ray import tune

from trainyard.callbacks import EpochRecords, ResumableCheckpoints
from trainyard.data.food11 import Food11
from trainyard.resume import checkpoint_files, checkpoints
from trainyard.tracking.runs import write_metrics


class SafeReportCallback(ResumableCheckpoints):
    """Reports to Ray Train, and writes the run's records when the checkpoint is stored."""

    def __init__(self, data: Food11, records: EpochRecords) -> None:
        super().__init__(data)
        self._records = records

    def report(self, metrics: dict[str, Any], folder: Path | None, model: dict[str, Any]) -> None:
        """Reports an epoch, and waits until it is stored.

        A checkpoint has some MB and is stored in a moment: it is worth waiting for, because then no
        epoch is trained twice but the current one.
        """
        # Not before the checkpoint: a resumed run's history is its checkpoint's.
        history = [dict(record) for record in self._records.history]
        stored = partial(write_metrics, history)
        checkpoints.report(metrics, folder, model, stored, wait=True)

    def on_test_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        """Writes the records with the test's accuracy."""
        if trainer.is_global_zero:
            write_metrics(self._records.history)


class SafeTuneReportCallback(ResumableCheckpoints):
    """Reports to Ray Tune."""

    def __init__(self, data: Food11) -> None:
        super().__init__(data)
        logging.getLogger("ray").setLevel(logging.WARNING)  # the driver prints each report

    def report(self, metrics: dict[str, Any], folder: Path | None, model: dict[str, Any]) -> None:
        """Reports an epoch of a trial, which is a single process."""
        if folder is None:
            return
        metrics = metrics | {"generated": self._data.generated}
        checkpoint_files.write_manifest(folder, model)
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))
        shutil.rmtree(folder, ignore_errors=True)
