"""What a run leaves in the store under `<storage>/<run>/`, and how a job writes it.

config.json         the job's arguments, as the run was last started
starts.jsonl        one line a start: time, arguments, git commit, package versions
metrics.jsonl       one line an epoch
curves.png          loss and accuracy over the epochs
checkpoint_*/       Ray Train's, the newest few

Jobs reach the store through pyarrow, as Ray Train does: both take the same environment.
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
from typing import Any

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

    @property
    def url(self) -> str:
        """Address of the folder."""
        return f"{self.storage}/{self.name}"

    def config(self) -> dict[str, Any] | None:
        """The arguments of the last start, None before the first."""
        text = self._read(CONFIG)
        return None if text is None else dict(json.loads(text))

    def metrics(self) -> list[dict[str, Any]]:
        """One record an epoch, oldest first."""
        return [json.loads(line) for line in (self._read(METRICS) or b"").splitlines()]

    def start(self, config: dict[str, Any]) -> None:
        """Records a start and its configuration."""
        self._write(CONFIG, json.dumps(config, indent=2).encode())
        record = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": os.environ.get(COMMIT_VARIABLE, ""),
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in PACKAGES},
            "config": config,
        }
        self._write(STARTS, (self._read(STARTS) or b"") + json.dumps(record).encode() + b"\n")

    def write_metrics(self, history: Sequence[dict[str, Any]]) -> None:
        """Writes all epochs anew: a resumed run's history is its checkpoint's."""
        self._write(METRICS, "".join(json.dumps(epoch) + "\n" for epoch in history).encode())

    def draw_curves(self) -> None:
        """Draws loss and accuracies of the recorded epochs."""
        from matplotlib.figure import Figure  # noqa: PLC0415 - slow

        history = self.metrics()
        epochs = [record["epoch"] + 1 for record in history]
        figure = Figure(figsize=(9, 4), layout="constrained")
        for axes, names in zip(
            figure.subplots(1, 2), (("loss", "valid_loss"), ("train_acc", "valid_acc")), strict=True
        ):
            for name in names:
                axes.plot(epochs, [record[name] for record in history], marker="o", label=name)
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.3)
            axes.legend()
        figure.suptitle(self.name)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=110)
        self._write(CURVES, image.getvalue())

    def _read(self, name: str) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self._folder}/{name}") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def _write(self, name: str, content: bytes) -> None:
        path = f"{self._folder}/{name}"
        # An object appears whole or not at all; a file does so by a rename.
        local = self._files.type_name == "local"
        if local:
            self._files.create_dir(self._folder)
        with self._files.open_output_stream(f"{path}.part" if local else path) as file:
            file.write(content)
        if local:
            self._files.move(f"{path}.part", path)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
