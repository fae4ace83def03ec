"""A run's files in the store under `<storage>/<run>/`.

config.json         the job's arguments at the run's last start
starts.jsonl        one line per start: time, arguments, git commit, package versions
metrics.jsonl       one line per epoch
curves.png          figures over the epochs (trainyard/report/curves.py), once the run has ended
checkpoint_*/       the newest few (trainyard/resume/checkpoints.py)
tracking.json       the run of MLflow, if the stack has it (trainyard/tracking/tracking.py)

`<storage>/.trainyard/runs/<run>` is the run in short, for lists of thousands. The driver stores it
when the run has ended, and removes it before the run changes again: while it is there, it says what
the run's own files say. A run that trains, has failed or was killed has none.

Jobs reach the store through trainyard/store/objects.py, which waits for an unavailable store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainyard import json_values
from trainyard.store.objects import MOST_STATE_BYTES, StorageError, open_folder

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

CONFIG = "config.json"
STARTS = "starts.jsonl"
METRICS = "metrics.jsonl"
CURVES = "curves.png"
TRACKED = "tracking.json"
CHECKPOINT = "checkpoint_"  # how the name of a checkpoint's folder begins
CHECKPOINT_FILE = "checkpoint.pt"
SUMMARIES = ".trainyard/runs"  # in the store; no run's name begins with a dot

RUN_VARIABLE = "TRAINYARD_RUN"
COMMIT_VARIABLE = "TRAINYARD_GIT_COMMIT"
STORAGE_VARIABLE = "TRAINYARD_STORAGE_URL"
PROGRESS_VARIABLE = "TRAINYARD_PROGRESS"
NODES_VARIABLE = "TRAINYARD_NODES"  # JSON: what each node declares, by Ray's names

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def check_name(name: str) -> str:
    """Returns a run's name.

    Raises:
        ValueError: it would not work everywhere as a folder and as an object's prefix.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(
            f"run name {name[:80]!r} is not 1 to 63 lower-case letters, digits, '.', '_' or '-' "
            "beginning with a letter or digit: choose another name"
        )
    return name


def whole_records(content: bytes | None) -> list[dict[str, Any]]:
    """Return the objects in lines of JSON, up to the first line without one."""
    records: list[dict[str, Any]] = []
    for line in (content or b"").splitlines():
        if (record := json_values.parse_object(line)) is None:
            break
        records.append(record)
    return records


def newest_checkpoint(folders: Iterable[str]) -> str:
    """Return the last of a run's folders that is a checkpoint's; "" without one."""
    return max((name for name in folders if name.startswith(CHECKPOINT)), default="")


def best(metrics: Iterable[dict[str, Any]]) -> float | None:
    """Return the best `valid_acc` of a run's epochs; None without one."""
    found = (json_values.number(epoch.get("valid_acc")) for epoch in metrics)
    return max((each for each in found if each is not None), default=None)


def summary(
    name: str, config: dict[str, Any], started: int, metrics: list[dict[str, Any]], checkpoint: str
) -> bytes:
    """Return a run in short: see RunRecord (trainyard/client/history.py)."""
    found = {"name": name, "config": config, "started": started, "checkpoint": checkpoint}
    found |= {"epochs": len(metrics), "last": metrics[-1] if metrics else {}, "best": best(metrics)}
    return json_values.text(found).encode()


class RunFolder:
    """A run's folder in the store; `storage` is the URL above it, `store` has its files."""

    def __init__(self, storage: str, name: str) -> None:
        """Opens the folder below s3://bucket[/prefix] or file:///folder; nothing is created.

        Raises:
            ValueError: a bad name.
        """
        from pyarrow.fs import FileSystem  # noqa: PLC0415 - the client imports this module too

        self.name = check_name(name)
        self.storage = storage.rstrip("/")
        self._files, root = FileSystem.from_uri(self.storage)
        self._folder = f"{root}/{name}"
        self.store = open_folder(self._files, self._folder)

    @property
    def url(self) -> str:
        """Address of the folder."""
        return f"{self.storage}/{self.name}"

    @property
    def place(self) -> tuple[FileSystem, str]:
        """The folder as pyarrow knows it."""
        return self._files, self._folder

    def config(self) -> dict[str, Any] | None:
        """Return the arguments of the last start, None before the first.

        Raises:
            StorageError: the file is not a configuration.
        """
        text = self.read(CONFIG)
        if text is None:
            return None
        if (found := json_values.parse_object(text)) is None:
            raise StorageError(
                f"{self.url}/{CONFIG} is not a JSON object: restore it, or take another --name"
            )
        return found

    def metrics(self) -> list[dict[str, Any]]:
        """Return one record per epoch, oldest first, up to the first damaged one."""
        return whole_records(self.read(METRICS))

    def read(self, name: str) -> bytes | None:
        """Return one of the run's files; None if it does not exist."""
        return self.store.get(name, MOST_STATE_BYTES)

    def write(self, name: str, content: bytes) -> None:
        """Writes one of the run's files, which appears whole or not at all."""
        self.store.write(name, content)
