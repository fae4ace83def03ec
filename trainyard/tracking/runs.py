"""A run, written by its job: starts, metrics, curves; also in MLflow, if the stack has it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import PurePosixPath
from typing import Any

from trainyard import json_values
from trainyard.housekeeping import housekeeping
from trainyard.report import curves
from trainyard.resume.controller_files import ControllerFiles
from trainyard.store.objects import Store, open_folder
from trainyard.tracking import tracking
from trainyard.tracking.run_folder import (
    COMMIT_VARIABLE,
    CONFIG,
    CURVES,
    METRICS,
    STARTS,
    SUMMARIES,
    RunFolder,
    newest_checkpoint,
    summary,
    whole_records,
)

PACKAGES = ("ray", "torch", "torchvision", "numpy", "scikit-learn", "pyarrow")


class Run(RunFolder):
    """A run's folder, written to by its job; for arguments see RunFolder."""

    def __init__(self, storage: str, name: str) -> None:
        super().__init__(storage, name)
        self._tracking = tracking.open_log(self)

    @cached_property
    def files(self) -> ControllerFiles:
        """The store for Ray Train, which survives an outage of some minutes."""
        return ControllerFiles(self.place[0])

    @cached_property
    def _summaries(self) -> Store:
        return open_folder(self.place[0], f"{self.storage_path}/{SUMMARIES}")

    @property
    def storage_path(self) -> str:
        """The folder in `files` that has the run's folder."""
        return str(PurePosixPath(self.place[1]).parent)

    def start(self, config: dict[str, Any]) -> None:
        """Records a start and its configuration."""
        self._summaries.delete(self.name)  # before anything that it says changes
        self.write(CONFIG, json_values.text(config, indent=2).encode())
        record = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": os.environ.get(COMMIT_VARIABLE, ""),
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "config": config,
        }
        self.write(STARTS, (self.read(STARTS) or b"") + json_values.text(record).encode() + b"\n")
        self.store.delete(CURVES)  # an earlier end's; until the next end, `train show` draws
        if self._tracking is not None:
            self._tracking.start(config)

    def write_metrics(self, history: Sequence[dict[str, Any]]) -> None:
        """Rewrites all epochs: a resumed run's history is its checkpoint's."""
        self.write(METRICS, "".join(json_values.text(epoch) + "\n" for epoch in history).encode())
        if self._tracking is not None:
            self._tracking.log(history)

    def end(self) -> None:
        """Draws the curves, tells MLflow that the run is done, sums it up; for its driver."""
        with housekeeping(f"{CURVES} is missing"):
            self.draw_curves()
        if self._tracking is not None:
            self._tracking.end()
        with housekeeping("`train runs` reads all of this run's files"):
            self._sum_up()

    def _sum_up(self) -> None:
        """Stores the run's summary; not of damaged records, which a list tells of."""
        contents = [self.read(name) or b"" for name in (STARTS, METRICS)]
        starts, epochs = map(whole_records, contents)
        if len(starts) + len(epochs) < sum(len(each.splitlines()) for each in contents):
            return
        started = int(datetime.fromisoformat(starts[-1]["time"]).timestamp() * 1000)
        checkpoint = newest_checkpoint(self.store.folders())
        content = summary(self.name, self.config() or {}, started, epochs, checkpoint)
        self._summaries.write(self.name, content)

    def draw_curves(self) -> None:
        """Draws the figures of the recorded epochs."""
        if history := self.metrics():
            self.write(CURVES, curves.of_run(self.name, self.config() or {}, history))


def write_metrics(history: Sequence[dict[str, Any]]) -> None:
    """Rewrites all epochs of the run of this worker of Ray Train."""
    _current_run().write_metrics(history)


@cache
def _current_run() -> Run:
    from ray import train  # noqa: PLC0415 - slow

    place = train.get_context().get_storage()
    folder = open_folder(place.storage_filesystem, place.experiment_fs_path)
    storage, _, name = folder.where.rpartition("/")
    return Run(storage, name)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
