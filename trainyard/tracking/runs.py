"""A run, written by its job: starts, metrics, curves; also in MLflow, if the stack has it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from trainyard import json_values
from trainyard.housekeeping import housekeeping
from trainyard.report import curves
from trainyard.resume import checkpoint_files
from trainyard.resume.controller_files import ControllerFiles
from trainyard.store.objects import Store, open_folder, open_url
from trainyard.tracking import tracking
from trainyard.tracking.run_folder import (
    COMMIT_VARIABLE,
    CONFIG,
    CURVES,
    METRICS,
    NO_GOALS,
    RUN_VARIABLE,
    STARTS,
    STORAGE_VARIABLE,
    SUMMARIES,
    Goals,
    RunFolder,
    known_goals,
    lines,
    sum_up,
)

PACKAGES = ("ray", "torch", "torchvision", "numpy", "scikit-learn", "pyarrow")


class Run(RunFolder):
    """A run's folder, written to by its job; `goals` are as `trainyard.goal` has them."""

    def __init__(self, storage: str, name: str, goals: Goals = NO_GOALS) -> None:
        """Opens a folder as RunFolder does; ValueError for what is not a goal too."""
        super().__init__(storage, name)
        if known_goals(goals) != goals:
            raise ValueError(f"goals {goals}: give 'max' or 'min' by the names of figures")
        self._goals = goals
        self._tracking = tracking.open_log(self)

    @cached_property
    def files(self) -> ControllerFiles:
        """The store for Ray Train, which survives an outage of some minutes."""
        return ControllerFiles(self.place[0])

    @cached_property
    def _all_runs(self) -> Store:
        return open_folder(self.place[0], self.storage_path)

    @property
    def storage_path(self) -> str:
        """The folder in `files` that has the run's folder."""
        return str(PurePosixPath(self.place[1]).parent)

    def start(self, config: dict[str, Any]) -> None:
        """Records a start, its configuration and goals."""
        self._all_runs.delete(f"{SUMMARIES}/{self.name}")  # before anything that it says changes
        self.write(CONFIG, json_values.text(config, indent=2).encode())
        record = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": os.environ.get(COMMIT_VARIABLE, ""),
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "config": config,
            "goals": self._goals,
        }
        self.write(STARTS, (self.read(STARTS) or b"") + json_values.text(record).encode() + b"\n")
        self.store.delete(CURVES)  # an earlier end's; until the next end, `train show` draws
        if self._tracking is not None:
            self._tracking.start(config)

    def write_metrics(self, history: Sequence[dict[str, Any]]) -> None:
        """Rewrites all epochs: a resumed run's history is its checkpoint's."""
        self.write(METRICS, lines(history))
        if self._tracking is not None:
            self._tracking.log(history)

    def end(self) -> None:
        """Draws the curves, tells MLflow that the run is done, sums it up; for its driver."""
        with housekeeping(f"{CURVES} is missing"):
            self.draw_curves()
        if self._tracking is not None:
            self._tracking.end()
        with housekeeping("`train runs` reads all of this run's files"):
            if content := sum_up(self._all_runs, self.name):
                self._all_runs.write(f"{SUMMARIES}/{self.name}", content)

    def draw_curves(self) -> None:
        """Draws the figures of the recorded epochs."""
        if history := self.metrics():
            self.write(CURVES, curves.of_run(self.name, self.config() or {}, history, self._goals))


def write_metrics(history: Sequence[dict[str, Any]]) -> None:
    """Rewrites all epochs of the run of this worker of Ray Train."""
    _current_run().write_metrics(history)


def keep_checkpoint(folder: Path, model: dict[str, Any]) -> None:
    """Adds a checkpoint to the run of this job or worker, if it has one; as `write_manifest`."""
    import ray  # noqa: PLC0415 - slow

    storage, name = os.environ.get(STORAGE_VARIABLE), os.environ.get(RUN_VARIABLE)
    if storage and name:
        checkpoint_files.add(open_url(f"{storage.rstrip('/')}/{name}"), folder, model)
    elif ray.is_initialized():
        try:
            store = _current_run().store
        except RuntimeError:  # Ray's, in a task: only workers of Ray Train have a run
            return
        checkpoint_files.add(store, folder, model)


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
