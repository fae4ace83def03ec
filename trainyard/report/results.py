"""A run's model, in one line of a notebook or script.

    import trainyard
    model = trainyard.load("first")      # from `train pull first`; on a node, from the store
    model = trainyard.load("first", network=network())     # a network of your own script

Pulled runs do not need the cluster.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import JobError
from trainyard.resume import checkpoint_files
from trainyard.resume.checkpoint_files import CheckpointError
from trainyard.store.objects import FolderStore, Store, open_url
from trainyard.tracking.run_folder import CHECKPOINT_FILE, OUTPUT, STORAGE_VARIABLE, check_name

if TYPE_CHECKING:
    from torch import nn

NEEDED = ("architecture", "classes", "file", "prefix")  # of a manifest's model


def load(
    run: str | Path, folder: str | Path = "results", network: nn.Module | None = None
) -> nn.Module:
    """Return the model of a run's newest valid checkpoint, on the CPU, in evaluation mode.

    Every byte is compared with the checkpoint's manifest, and only tensors and plain values are
    read.

    Args:
        run: its name; or the folder of a checkpoint that was checked, as services have it.
        folder: of runs, as `--to` of `train pull`. A run that it lacks is read from the store that
            TRAINYARD_STORAGE_URL names, as jobs have it.
        network: gets the weights; None for one of this library, which the checkpoint describes.

    Raises:
        ValueError: the name is invalid, or this code lacks the model's architecture.
        JobError: the run or its checkpoint is missing, or its job does not describe the model.
        CheckpointError: it has no valid checkpoint.
        RuntimeError: the weights do not fit the architecture.
        StorageError: the store cannot be read.
    """
    if isinstance(run, Path):
        if not (run / checkpoint_files.MANIFEST).is_file():
            raise JobError(f"{run} is not a checkpoint: define load(folder) in the job's script")
        return _model(run, checkpoint_files.model(run), run.name, network)
    place = Path(folder).expanduser()
    pulled = place / check_name(run)
    storage = os.environ.get(STORAGE_VARIABLE)
    if pulled.is_dir():
        return _newest(FolderStore(pulled), run, network, here=pulled)
    if not storage:
        raise JobError(
            f"run {run!r} is not in {place.absolute()}: bring it with `train pull {run}`, "
            "or name the folder that has it"
        )
    return _newest(open_url(f"{storage.rstrip('/')}/{run}"), run, network)


def _newest(
    store: Store, run: str, network: nn.Module | None, here: Path | None = None
) -> nn.Module:
    """Return the newest model of a store; `here` is the same store, if it is a local folder."""
    faults = []
    for name, sizes in checkpoint_files.candidates(store).items():
        try:
            manifest = checkpoint_files.manifest_of(store, name, sizes)
            if here is not None and checkpoint_files.PACKED not in manifest["files"]:
                _check(here / name, manifest["files"])
                return _model(here / name, manifest["model"], run, network)
            with tempfile.TemporaryDirectory() as scratch:
                checkpoint_files.fetch(store, name, Path(scratch))
                return _model(Path(scratch), manifest["model"], run, network)
        except CheckpointError as error:
            faults.append(f"{name}: {error}")
    if not faults:
        left = f"what it has left is in {OUTPUT}/ there; " if OUTPUT in store.folders() else ""
        raise JobError(
            f"run {run!r} has no checkpoint in {store.where}: {left}pull it when it has one"
        )
    raise CheckpointError(
        f"no checkpoint of run {run!r} in {store.where} is valid ({'; '.join(faults)}): remove the "
        "folder and pull it again"
    )


def _check(folder: Path, files: dict[str, dict[str, object]]) -> None:
    for name, expected in files.items():
        found = checkpoint_files.digest_of(folder / name)
        if found != (expected["size"], expected["sha256"]):
            raise CheckpointError(f"{name} does not match its manifest")


def _model(
    folder: Path, model: dict[str, object], run: str, network: nn.Module | None
) -> nn.Module:
    from trainyard import models  # noqa: PLC0415 - PyTorch takes seconds

    missing = [name for name in NEEDED if name not in model]
    if missing and network is None:
        raise JobError(
            f"run {run!r} does not describe its model ({', '.join(missing)}): give the untrained "
            f"network of its script, trainyard.load({run!r}, network=network())"
        )
    saved = checkpoint_files.load(folder / str(model.get("file", CHECKPOINT_FILE)), mapped=True)
    return models.load(saved, model, network)
