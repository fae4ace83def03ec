"""What a run leaves in the store under `<storage>/<run>/`, and how a job writes it.

config.json         the job's arguments, as the run was last started
starts.jsonl        one line a start: time, arguments, git commit, package versions
metrics.jsonl       one line an epoch
curves.png          loss and accuracy over the epochs
checkpoint_*/       the newest few (training/checkpoints.py)
tracking.json       which run of MLflow it is, where there is one (training/tracking.py)

Jobs reach the store by training/objects.py, which waits for one that is away for a while.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from training import tracking
from training.objects import open_folder

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

CONFIG = "config.json"
STARTS = "starts.jsonl"
METRICS = "metrics.jsonl"
CURVES = "curves.png"
CHECKPOINT_FILE = "checkpoint.pt"

RUN_VARIABLE = "TRAINYARD_RUN"
COMMIT_VARIABLE = "TRAINYARD_GIT_COMMIT"
STORAGE_VARIABLE = "TRAINYARD_STORAGE_URL"
PROGRESS_VARIABLE = "TRAINYARD_PROGRESS"

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
PACKAGES = ("ray", "torch", "torchvision", "numpy", "scikit-learn", "pyarrow")


def check_name(name: str) -> str:
    """Returns a run's name.

    Raises:
        ValueError: it would not do as a folder and as an object's prefix everywhere.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(
            f"run name {name[:80]!r} is not 1 to 63 lower-case letters, digits, '.', '_' or '-' "
            "beginning with a letter or digit: choose another name"
        )
    return name


class Run:
    """A run's folder in the store, written to by its job."""

    def __init__(self, storage: str, name: str) -> None:
        """Opens the folder; nothing is created.

        Args:
            storage: s3://bucket[/prefix] or file:///folder.
            name: the run's name.

        Raises:
            ValueError: a bad name.
        """
        from pyarrow.fs import FileSystem  # noqa: PLC0415 - the client imports this module too

        self.name = check_name(name)
        self.storage = storage.rstrip("/")
        self._files, root = FileSystem.from_uri(self.storage)
        self._folder = f"{root}/{name}"
        self._store = open_folder(self._files, self._folder)
        self._tracking = tracking.of(self)

    @property
    def url(self) -> str:
        """Address of the folder."""
        return f"{self.storage}/{self.name}"

    @property
    def place(self) -> tuple[FileSystem, str]:
        """The folder as pyarrow knows it."""
        return self._files, self._folder

    def config(self) -> dict[str, Any] | None:
        """The arguments of the last start, None before the first."""
        text = self.read(CONFIG)
        return None if text is None else dict(json.loads(text))

    def metrics(self) -> list[dict[str, Any]]:
        """One record an epoch, oldest first."""
        return [json.loads(line) for line in (self.read(METRICS) or b"").splitlines()]

    def read(self, name: str) -> bytes | None:
        """One of the run's files; None when it is not there."""
        try:
            return self._store.read(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Writes one of the run's files, which appears whole or not at all."""
        self._store.write(name, content)

    def start(self, config: dict[str, Any]) -> None:
        """Records a start and its configuration."""
        self.write(CONFIG, json.dumps(config, indent=2).encode())
        record = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": os.environ.get(COMMIT_VARIABLE, ""),
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "config": config,
        }
        self.write(STARTS, (self.read(STARTS) or b"") + json.dumps(record).encode() + b"\n")
        if self._tracking is not None:
            self._tracking.start(config)

    def write_metrics(self, history: Sequence[dict[str, Any]]) -> None:
        """Writes all epochs anew: a resumed run's history is its checkpoint's."""
        self.write(METRICS, "".join(json.dumps(epoch) + "\n" for epoch in history).encode())
        if self._tracking is not None:
            self._tracking.log(history)

    def end(self) -> None:
        """Draws the curves and has MLflow told that the run is done; for its driver."""
        self.draw_curves()
        if self._tracking is not None:
            self._tracking.end()

    def draw_curves(self) -> None:
        """Draws loss and accuracies of the recorded epochs."""
        from matplotlib.figure import Figure  # noqa: PLC0415 - slow

        history = self.metrics()
        epochs = [record["epoch"] + 1 for record in history]
        figure = Figure(figsize=(9, 4), layout="constrained")
        for axes, names in zip(
            figure.subplots(1, 2), (("loss", "valid_loss"), ("train_acc", "valid_acc")), strict=True
        ):
            for name in (each for each in names if all(each in record for record in history)):
                axes.plot(epochs, [record[name] for record in history], marker="o", label=name)
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.3)
            axes.legend()
        figure.suptitle(self.name)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=110)
        self.write(CURVES, image.getvalue())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
