"""The best trial's model as a checkpoint of the search, for `train pull` and `trainyard.load`."""

import tempfile
from pathlib import Path

from trainyard.resume import checkpoint_files
from trainyard.resume.checkpoint_files import MANIFEST, CheckpointError
from trainyard.store.objects import open_folder
from trainyard.tracking.run_folder import RunFolder


def keep(run: RunFolder, trial: str) -> None:
    """Copies a trial's newest valid checkpoint to the search's own, unless it is there already.

    `trial` is the name of its folder. Its checkpoints have manifests, as
    `checkpoint_files.write_manifest` writes them.

    Raises:
        CheckpointError: the trial has no valid checkpoint with a manifest.
        StorageError: the store stays unavailable.
    """
    files, folder = run.place
    trained = open_folder(files, f"{folder}/{trial}")
    kept = checkpoint_files.valid(run.store)
    for name, manifest in checkpoint_files.valid(trained):
        model = manifest["model"] | {"trial": f"{trial}/{name}"}
        if any(each["model"] == model for _, each in kept):
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            try:
                checkpoint_files.check_loads(copy, checkpoint_files.fetch(trained, name, copy))
            except CheckpointError as error:
                print(f"warning: {trial}/{name} is skipped: {error}", flush=True)  # noqa: T201 - a job's
                continue
            (copy / MANIFEST).unlink()  # it gets its own
            # A search interrupted at its end may now have another best trial: this copy is newer.
            checkpoint_files.add(run.store, copy, model)
            return
    raise CheckpointError(f"{trial} has no checkpoint that says what its model is")
