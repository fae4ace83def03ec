"""Checkpoints of a run: stored whole or not at all, restored only when nothing is wrong with them.

    checkpoint_000003-5d1c/checkpoint.pt    what the job wrote; many small files are one packed.tar
    checkpoint_000003-5d1c/manifest.json    stored last: size and sha256 of each file, and the model

Without a manifest a folder is no checkpoint. Names are in the order of their making. Ray Train is
told of each checkpoint, but which are there is read from the store: Ray's own list has those that
someone damaged or removed, and not one whose last report was lost with the worker.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from training.objects import Digest, Folder, StorageError, open_folder

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

MANIFEST = "manifest.json"
PACKED = "packed.tar"
VERSION = 1
SMALL_BYTES = 1024 * 1024  # several files up to this size travel as one
NUM_TO_KEEP = 2  # the newest checkpoint, and the one before it should the newest be damaged
PREFIX = "checkpoint_"
NUMBER = re.compile(rf"{PREFIX}(\d{{6}})-")
SCRATCH_PREFIX = "trainyard-checkpoint-"


class CheckpointError(Exception):
    """A checkpoint is damaged, or all of a run are; the message says what to do."""


class _Worker:
    """What one worker process remembers between its reports."""

    in_flight: Future[None] | None = None
    number = 0  # of the newest folder, whole or not; 0: not known yet
    broken: frozenset[str] = frozenset()


def write_manifest(folder: Path, model: dict[str, Any]) -> None:
    """Makes a local folder a checkpoint where it is; `report` does so on the way to the store.

    Args:
        folder: holds the files, and no manifest.
        model: what is needed to use the weights without the job. Keys: job, architecture, classes,
            image_side, mean, std, file (with the weights), prefix (of their names in its state);
            crop, where images were cut to a square instead of stretched.
    """
    files = {}
    for path in _files(folder):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.relative_to(folder).as_posix()] = Digest(path.stat().st_size, digest)
    (folder / MANIFEST).write_bytes(_manifest(files, model))


def new_folder() -> Path:
    """An empty folder for the files of a checkpoint; what a killed worker leaves is removed."""
    return Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=Path.cwd()))


def report(
    metrics: dict[str, Any],
    folder: Path | None = None,
    model: dict[str, Any] | None = None,
    stored: Callable[[], None] | None = None,
) -> None:
    """Reports to Ray Train; every rank calls it, and the first one gives the checkpoint.

    The checkpoint is stored by another thread, at most one at a time: training goes on meanwhile,
    and the next report waits for it. What was reported last is stored before the worker ends.

    Args:
        metrics: of this report.
        folder: the checkpoint's files; removed once they are stored. None: no checkpoint.
        model: as for `write_manifest`.
        stored: is called by that thread once the checkpoint can be restored, and nobody waits
            for it but the next report.

    Raises:
        StorageError: the previous checkpoint could not be stored.
    """
    from ray import train  # noqa: PLC0415
    from ray.train import CheckpointUploadMode  # noqa: PLC0415

    if train.get_context().get_world_rank() != 0:
        train.report(metrics)
        return
    if _Worker.in_flight is not None:
        _Worker.in_flight.result()
    if folder is None:
        train.report(metrics, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        return
    run = _run_folder()
    done: Future[None] = Future()

    def upload(checkpoint: train.Checkpoint, name: str) -> train.Checkpoint:
        try:
            store(run, name, Path(checkpoint.path), model or {})
            if stored is not None:
                stored()
            prune(run)
        except BaseException as error:
            done.set_exception(error)
            raise
        done.set_result(None)
        storage = train.get_context().get_storage()
        path = storage.build_checkpoint_path_from_name(name)
        return train.Checkpoint(path, storage.storage_filesystem)

    train.report(
        metrics,
        train.Checkpoint.from_directory(folder),
        checkpoint_dir_name=_next_name(run),
        checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
        checkpoint_upload_fn=upload,
        delete_local_checkpoint_after_upload=True,
    )
    _Worker.in_flight = done


@contextmanager
def restored() -> Iterator[Path | None]:
    """The newest valid checkpoint of the run, the same on all ranks; every rank calls it.

    Yields:
        A folder of the checkpoint's name with its files and its manifest, removed at the end; None
        before the first.

    Raises:
        CheckpointError: there are checkpoints and none is valid. On all ranks.
    """
    from ray import train  # noqa: PLC0415
    from ray.train.collective import broadcast_from_rank_zero  # noqa: PLC0415

    context = train.get_context()
    first = context.get_world_rank() == 0
    if context.get_local_rank() == 0:
        # Before any other rank of this machine makes a folder, which comes after the broadcast.
        for left in Path.cwd().glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
    run = _run_folder()
    scratch = new_folder() if first else None
    try:
        found: tuple[str | None, str] = (None, "")
        if scratch is not None:
            found = _choose(run, scratch, had_one=train.get_checkpoint() is not None)
            prune(run)  # what was cut off may fill the store
        name, fault = broadcast_from_rank_zero(found)
        if fault:
            raise CheckpointError(fault)
        if name is None:
            yield None
            return
        if scratch is None:
            scratch = new_folder()
            _fetch(run, name, scratch / name)
        yield scratch / name
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def load(file: Path, device: Any = "cpu", *, mapped: bool = False) -> dict[str, Any]:
    """What a checkpoint's file holds: tensors and plain values only.

    Whoever can write the bucket must not run code here.

    Args:
        file: as torch.save has written it.
        device: to have the tensors on.
        mapped: tensors are read from the file when they are used.

    Raises:
        CheckpointError: it holds something else, or is no such file.
    """
    import torch  # noqa: PLC0415 - the client imports what imports this

    try:
        state: dict[str, Any] = torch.load(
            file, map_location=device, weights_only=True, mmap=mapped
        )
    except Exception as error:  # which ones, depends on what is wrong
        # Between advice that would do harm here stands what was found.
        parts = [part for part in str(error).split("\n\n") if part.strip()]
        found = " ".join(parts[-2 if len(parts) > 2 else 0].split())
        raise CheckpointError(
            f"{file.name} does not hold tensors and plain values only: {found}"
        ) from None
    return state


def valid(files: FileSystem, folder: str) -> list[tuple[str, dict[str, Any]]]:
    """Checkpoints of a run as far as names and sizes tell; `fetch` looks at the contents too.

    Args:
        files: of the store.
        folder: of the run.

    Returns:
        Names and manifests, the newest first.

    Raises:
        StorageError: the store cannot be read.
    """
    run = open_folder(files, folder)
    return [
        (name, manifest)
        for name, sizes in _candidates(run).items()
        if (manifest := _manifest_of(run, name, sizes)[0]) is not None
    ]


def fetch(files: FileSystem, folder: str, name: str, target: Path) -> dict[str, Any]:
    """Brings a checkpoint here and checks every byte.

    Args:
        files: of the store.
        folder: of the run.
        name: of the checkpoint.
        target: an empty folder.

    Returns:
        Its manifest.

    Raises:
        CheckpointError: it is damaged, or gone.
        StorageError: the store cannot be read.
    """
    return _fetch(open_folder(files, folder), name, target)


def store(run: Folder, name: str, folder: Path, model: dict[str, Any]) -> None:
    """Uploads a local folder as a checkpoint of a run; the manifest goes last.

    Args:
        run: the run's folder in the store.
        name: of the checkpoint; a new one.
        folder: the files.
        model: as for `write_manifest`.

    Raises:
        StorageError: the store did not take it; there is no manifest then.
    """
    paths = _files(folder)
    small = [path for path in paths if path.stat().st_size <= SMALL_BYTES]
    files: dict[str, Digest] = {}
    if len(small) > 1:
        # Beside the files: what is packed may be more than the memory holds.
        with tempfile.TemporaryFile(dir=folder) as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for path in small:
                    archive.add(path, path.relative_to(folder).as_posix())
            files[PACKED] = run.upload(f"{name}/{PACKED}", packed)
        paths = [path for path in paths if path not in small]
    for path in paths:
        relative = path.relative_to(folder).as_posix()
        with path.open("rb") as source:
            files[relative] = run.upload(f"{name}/{relative}", source)
    there = run.sizes()
    for relative, digest in files.items():
        if there.get(f"{name}/{relative}") != digest.size:
            raise StorageError(
                f"{run.where}/{name}/{relative} has {there.get(f'{name}/{relative}')} bytes after "
                f"{digest.size} were stored: another program changes the run's folder, or the "
                "store is broken; look at its log, then submit the run again"
            )
    run.write(f"{name}/{MANIFEST}", _manifest(files, model))


def prune(run: Folder) -> None:
    """Removes all but the newest NUM_TO_KEEP valid checkpoints, and what was never whole.

    A damaged one stays until there is a newer one that is valid. What the store does not remove
    now is removed with the next checkpoint.
    """
    try:
        found = _candidates(run)
        whole = [
            name
            for name, sizes in found.items()
            if name not in _Worker.broken and _manifest_of(run, name, sizes)[0] is not None
        ]
        for name, sizes in found.items():
            superseded = bool(whole) and name < whole[0] and name not in whole[:NUM_TO_KEEP]
            if superseded or (whole and MANIFEST not in sizes):
                # The manifest first: a reader never sees a checkpoint that lacks a file.
                run.delete(f"{name}/{MANIFEST}")
                run.delete(*(f"{name}/{file}" for file in sizes))
    except StorageError as error:
        print(f"warning: old checkpoints stay for now: {error}", flush=True)  # noqa: T201 a job's


def _choose(run: Folder, scratch: Path, *, had_one: bool) -> tuple[str | None, str]:
    """Fetches the newest valid checkpoint of a run.

    Args:
        run: the run's folder in the store.
        scratch: the files go to a folder of the checkpoint's name in here.
        had_one: the run is known to have had a checkpoint.

    Returns:
        Its name, or None before the first; why there is none although there was one, or "".
    """
    found = _candidates(run)
    for name, sizes in found.items():
        manifest, fault = _manifest_of(run, name, sizes)
        if manifest is not None:
            try:
                _fetch(run, name, scratch / name)
                if (weights := manifest["model"].get("file")) is not None:
                    load(_inside(scratch / name, weights), mapped=True)
            except CheckpointError as error:
                fault = str(error)
            else:
                return name, ""
            shutil.rmtree(scratch / name, ignore_errors=True)
        had_one = had_one or MANIFEST in sizes
        _Worker.broken |= {name}
        print(f"warning: checkpoint {name} is skipped: {fault}", flush=True)  # noqa: T201 a job's
    if not had_one:
        return None, ""
    return None, (
        f"none of the {len(found)} checkpoints in {run.where} is valid (see the warnings): bring "
        "the store's files back, or start anew with another --name"
    )


def _fetch(run: Folder, name: str, target: Path) -> dict[str, Any]:
    target.mkdir(parents=True, exist_ok=True)
    try:
        content = run.read(f"{name}/{MANIFEST}")
        manifest = _parsed(content)
        for relative, expected in manifest["files"].items():
            path = _inside(target, relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = run.download(f"{name}/{relative}", path)
            if digest != Digest(**expected):
                raise CheckpointError(
                    f"{relative} has {digest.size} bytes with sha256 {digest.sha256[:12]}…, its "
                    f"manifest says {expected['size']} with {expected['sha256'][:12]}…"
                )
    except FileNotFoundError as error:
        raise CheckpointError(f"{error} is not there") from None
    packed = target / PACKED
    if packed.exists():
        try:
            with tarfile.open(packed) as archive:
                archive.extractall(target, filter="data")
        except (tarfile.TarError, OSError) as error:
            raise CheckpointError(f"{PACKED} cannot be unpacked: {error}") from None
        packed.unlink()
    (target / MANIFEST).write_bytes(content)
    return manifest


def _candidates(run: Folder) -> dict[str, dict[str, int]]:
    """Bytes of each file of each folder that is or may become a checkpoint, the newest first."""
    found: dict[str, dict[str, int]] = {}
    for path, size in run.sizes().items():
        name, _, relative = path.partition("/")
        if name.startswith(PREFIX) and relative:
            found.setdefault(name, {})[relative] = size
    return dict(sorted(found.items(), reverse=True))


def _manifest_of(
    run: Folder, name: str, sizes: dict[str, int]
) -> tuple[dict[str, Any] | None, str]:
    """A checkpoint's manifest, or None and why the folder is no checkpoint."""
    if MANIFEST not in sizes:
        return None, f"it has no {MANIFEST}: it was never stored to its end"
    try:
        manifest = _parsed(run.read(f"{name}/{MANIFEST}"))
    except (CheckpointError, FileNotFoundError) as error:
        return None, str(error)
    for relative, digest in manifest["files"].items():
        if relative not in sizes:
            return None, f"{relative} is not there"
        if sizes[relative] != digest["size"]:
            return None, (
                f"{relative} has {sizes[relative]} bytes, its manifest says {digest['size']}"
            )
    return manifest, ""


def _manifest(files: dict[str, Digest], model: dict[str, Any]) -> bytes:
    entries = {name: digest._asdict() for name, digest in files.items()}
    return json.dumps({"version": VERSION, "model": model, "files": entries}, indent=1).encode()


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(content)
        for digest in manifest["files"].values():
            Digest(int(digest["size"]), str(digest["sha256"]))
        if manifest["version"] != VERSION:
            raise CheckpointError(
                f"its {MANIFEST} has version {manifest['version']}, this program reads {VERSION}"
            )
        manifest["model"].get("file")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"its {MANIFEST} cannot be read: {error!r}") from None
    return manifest


def _inside(folder: Path, name: str) -> Path:
    """A name of the manifest as a path; whoever can write the bucket must not write elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise CheckpointError(f"its {MANIFEST} names {name!r}, which is not inside the checkpoint")
    return folder / path


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _next_name(run: Folder) -> str:
    """Greater than those of all folders; a worker that was taken for dead has another one."""
    if not _Worker.number:
        numbers = [int(found[1]) for name in _candidates(run) if (found := NUMBER.match(name))]
        _Worker.number = max(numbers, default=0)
    _Worker.number += 1
    return f"{PREFIX}{_Worker.number:06d}-{secrets.token_hex(2)}"


def _run_folder() -> Folder:
    from ray import train  # noqa: PLC0415

    storage = train.get_context().get_storage()
    return open_folder(storage.storage_filesystem, storage.experiment_fs_path)
