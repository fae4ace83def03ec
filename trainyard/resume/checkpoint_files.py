"""The files of a checkpoint: stored whole or not at all, and checked before use.

    checkpoint_000003-5d1c/checkpoint.pt    the job's file; many small files are one packed.tar
    checkpoint_000003-5d1c/manifest.json    stored last: size and sha256 of each file, and the model

A folder without a manifest is not a checkpoint. Names sort in the order of creation. The argument
`run` is the run's folder in the store.
"""

import hashlib
import json
import re
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from trainyard import failpoints, json_values
from trainyard.errors import JobError
from trainyard.housekeeping import housekeeping
from trainyard.store import archive
from trainyard.store.objects import Digest, StorageError, Store, StoreReader

MANIFEST = "manifest.json"
PACKED = "packed.tar"
MLFLOW_MODEL = "MLmodel"  # MLflow's name: beside the manifest, of a version of a model there
VERSION = 1
SMALL_BYTES = 1024 * 1024  # several files up to this size travel as one
NUM_TO_KEEP = 2  # the newest checkpoint, and the one before it in case the newest is damaged
PREFIX = "checkpoint_"
NAME = re.compile(PREFIX + r"([0-9]{1,200})(?:-[0-9a-z]{1,32})?")
MANIFEST_BYTES = 16 * 1024 * 1024  # at most: it is read into memory
# Files that a resumed run loads, whether or not the model's description names them: other files may
# be the job's own, such as a traced model.
LOADED = ("checkpoint.pt", "checkpoint.ckpt")
SHA256 = re.compile(r"[0-9a-f]{64}")


class CheckpointError(JobError):
    """A checkpoint is damaged, or all of a run's are; the message says what to do."""


class ResumePoint(NamedTuple):
    """The checkpoint to go on from."""

    name: str | None
    fault: str  # why a checkpoint that existed is not usable; else ""
    broken: frozenset[str]  # newer folders that are not valid checkpoints


def write_manifest(
    folder: Path, model: dict[str, Any], known: Mapping[str, Digest] | None = None
) -> None:
    """Makes a local folder a checkpoint in place; `report` does so on the way to the store.

    Args:
        folder: holds the files, and no manifest or an older one.
        model: description for using the weights without the job. Keys: job, architecture, classes,
            image_side, mean, std, file (with the weights), prefix (of their names in its state);
            crop, where images were cut to a square instead of stretched; resized_side, where they
            were stretched to that side and their middle cut out.
        known: digests of files that were read already; the others are read here.
    """
    files = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if name != MANIFEST:
            files[name] = (known or {}).get(name) or digest_of(path)
    (folder / MANIFEST).write_bytes(_manifest(files, model))


def model(folder: Path) -> dict[str, Any]:
    """Return the description of the model in a local checkpoint's manifest."""
    found: dict[str, Any] = _parsed((folder / MANIFEST).read_bytes())["model"]
    return found


def digest_of(path: Path) -> Digest:
    """Reads a file for its digest."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Digest(path.stat().st_size, sha256)


def load(file: Path, device: Any = "cpu", *, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint's file: tensors and plain values only.

    Someone who can write to the bucket must not run code here.

    Args:
        file: written by torch.save.
        device: for the tensors.
        mapped: tensors are read from the file when they are used.

    Raises:
        CheckpointError: it has other values, or is not such a file.
    """
    import torch  # noqa: PLC0415 - listing or moving checkpoints does not need it

    try:
        state: dict[str, Any] = torch.load(
            file, map_location=device, weights_only=True, mmap=mapped
        )
    except Exception as error:  # its type depends on the fault
        # The finding stands between advice that would do harm here.
        parts = [part for part in str(error).split("\n\n") if part.strip()]
        found = " ".join(parts[-2 if len(parts) > 2 else 0].split())
        raise CheckpointError(
            f"{file.name} does not hold tensors and plain values only: {found}"
        ) from None
    return state


def valid(run: StoreReader) -> list[tuple[str, dict[str, Any]]]:
    """Return names and manifests of the checkpoints whose names and sizes are valid, newest first.

    `fetch` checks contents too.

    Raises:
        StorageError: the store cannot be read.
    """
    return _valid(run, candidates(run))


def _valid(
    run: StoreReader, found: Mapping[str, dict[str, int]]
) -> list[tuple[str, dict[str, Any]]]:
    whole = []
    for name, sizes in found.items():
        with suppress(CheckpointError):
            whole.append((name, manifest_of(run, name, sizes)))
    return whole


def store(run: Store, name: str, folder: Path, model: dict[str, Any]) -> None:
    """Uploads a local folder as a new checkpoint of a run; the manifest goes last.

    Raises:
        CheckpointError: the folder has no files, or one has a name that nothing could restore.
        StorageError: the store did not accept it; the checkpoint has no manifest then.
    """
    paths = _files(folder)
    if not paths:
        raise CheckpointError(f"checkpoint {name} has no files: write one into its folder")
    for path in paths:
        relative = path.relative_to(folder).as_posix()
        fault = archive.fault_of_name(relative) or _reserved(relative, PACKED)
        if fault:
            raise CheckpointError(f"{relative[:80]!a} of the checkpoint {fault}: rename it")
    small = [path for path in paths if path.stat().st_size <= SMALL_BYTES][: archive.MOST_FILES]
    files: dict[str, Digest] = {}
    if len(small) > 1:
        # Next to the files: the archive may be larger than the memory.
        with tempfile.TemporaryFile(dir=folder) as packed:
            # Links are packed as their targets: links are not unpacked.
            with tarfile.open(fileobj=packed, mode="w", dereference=True) as tar:
                for path in small:
                    tar.add(path, path.relative_to(folder).as_posix())
            files[PACKED] = run.upload(f"{name}/{PACKED}", packed)
        packed_paths = {*small}
        paths = [path for path in paths if path not in packed_paths]
    for path in paths:
        failpoints.reach("checkpoint.file")
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
    failpoints.reach("checkpoint.manifest")
    run.write(f"{name}/{MANIFEST}", _manifest(files, model))
    failpoints.reach("checkpoint.written")


def add(run: Store, folder: Path, model: dict[str, Any]) -> None:
    """Uploads a local folder as the newest checkpoint of a run, as `store`; prunes the others."""
    number = max((order(name)[0] for name in candidates(run)), default=0) + 1
    store(run, f"{PREFIX}{number:06d}-{secrets.token_hex(2)}", folder, model)
    prune(run, frozenset())


def adopt(run: Store, model: dict[str, Any]) -> None:
    """Adds the newest checkpoint that a callback of Ray's own has stored, if the run has one.

    Ray names it by the time and gives it no manifest: nothing else here would take it. Errors are
    those of `store`.
    """
    named = (name for name in run.folders() if name.startswith(PREFIX))
    newest = max((name for name in named if not NAME.fullmatch(name)), default="")
    if not newest:
        return
    with tempfile.TemporaryDirectory() as scratch:
        for name in run.listed(newest):
            target = inside(Path(scratch), name)
            target.parent.mkdir(parents=True, exist_ok=True)
            run.download(f"{newest}/{name}", target)
        add(run, Path(scratch), model)


def prune(run: Store, broken: frozenset[str], *, unfinished: bool = True) -> None:
    """Keeps the newest NUM_TO_KEEP valid checkpoints; removes older and incomplete ones.

    A damaged one stays until a newer one is valid: those in `broken` are damaged, whatever their
    manifests say. `unfinished` removes incomplete ones that are newer than the valid ones too. If
    the store does not remove a checkpoint now, it is removed with the next one.
    """
    with housekeeping("old checkpoints stay for now"):
        found = candidates(run)
        manifests = {name: each for name, each in _valid(run, found) if name not in broken}
        whole = list(manifests)
        for name, sizes in found.items():
            older = bool(whole) and order(name) < order(whole[0])
            # A version of a model in MLflow has its files here: they stay as long as the run.
            added = MLFLOW_MODEL in sizes and name in manifests
            version = added and MLFLOW_MODEL not in manifests[name]["files"]
            superseded = older and name not in whole[:NUM_TO_KEEP] and not version
            if superseded or (unfinished and whole and MANIFEST not in sizes):
                # The manifest first: a reader never sees a checkpoint that lacks a file.
                run.delete(f"{name}/{MANIFEST}")
                failpoints.reach("checkpoint.removed")
                run.delete(*(f"{name}/{file}" for file in sizes))


def choose(
    run: Store,
    scratch: Path,
    *,
    had_one: bool,
    check: Callable[[Path], None] | None = None,
) -> ResumePoint:
    """Fetches the newest valid checkpoint of a run into a folder of its name in `scratch`.

    With `had_one` the run is known to have had a checkpoint. `check` raises CheckpointError where a
    job cannot use what was fetched.
    """
    found = candidates(run)
    broken: frozenset[str] = frozenset()
    for name, sizes in found.items():
        try:
            manifest_of(run, name, sizes)
            check_loads(scratch / name, fetch(run, name, scratch / name))
            if check is not None:
                check(scratch / name)
        except CheckpointError as error:
            print(f"warning: checkpoint {name} is skipped: {error}", flush=True)  # noqa: T201 a job's
        else:
            return ResumePoint(name, "", broken)
        shutil.rmtree(scratch / name, ignore_errors=True)
        had_one = had_one or MANIFEST in sizes
        broken |= {name}
    if not had_one:
        return ResumePoint(None, "", broken)
    fault = (
        f"none of the {len(found)} checkpoints in {run.where} is valid (see the warnings): bring "
        "the store's files back, or start again with another --name"
    )
    return ResumePoint(None, fault, broken)


def check_loads(folder: Path, manifest: dict[str, Any]) -> None:
    """Tries to load the files of a checkpoint that a run, a service or a notebook loads.

    Raises:
        CheckpointError: one holds more than tensors and plain values.
    """
    weights = manifest["model"].get("file")
    for path in _files(folder):
        if path.relative_to(folder).as_posix() in {*LOADED, weights}:
            load(path, mapped=True)


def fetch(run: StoreReader, name: str, target: Path) -> dict[str, Any]:
    """Downloads a checkpoint, checks every byte, and returns its manifest.

    The target is an empty folder, or one with the files of an interrupted transfer.

    Raises:
        CheckpointError: it is damaged, or gone.
        StorageError: the store cannot be read.
    """
    target.mkdir(parents=True, exist_ok=True)
    (target / MANIFEST).unlink(missing_ok=True)  # of a transfer interrupted at its end
    try:
        content = run.read(f"{name}/{MANIFEST}")
        manifest = _parsed(content)
        for relative, expected in manifest["files"].items():
            path = inside(target, relative)
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = run.download(f"{name}/{relative}", path)
            if digest != Digest(expected["size"], expected["sha256"]):
                raise CheckpointError(
                    f"{relative} has {digest.size} bytes with sha256 {digest.sha256[:12]}…, its "
                    f"manifest says {expected['size']} with {expected['sha256'][:12]}…"
                )
    except FileNotFoundError as error:
        raise CheckpointError(f"{error} is not there") from None
    packed = target / PACKED
    if packed.exists():
        try:
            # A plain tar is larger than its content.
            archive.unpack(packed, target, most_bytes=packed.stat().st_size)
        except archive.ArchiveError as error:
            raise CheckpointError(f"{PACKED} cannot be unpacked: {error}") from None
        packed.unlink()
        if (target / MANIFEST).exists():
            raise CheckpointError(f"{PACKED} holds a {MANIFEST}")
    if not _files(target):
        raise CheckpointError(f"{PACKED} holds no files")
    weights = manifest["model"].get("file")
    if weights is not None and not inside(target, weights).is_file():
        raise CheckpointError(f"its {MANIFEST} names {weights[:80]!a}, which is not there")
    (target / MANIFEST).write_bytes(content)
    return manifest


def candidates(run: StoreReader) -> dict[str, dict[str, int]]:
    """Bytes of each file of all complete or unfinished checkpoints, the newest first."""
    found: dict[str, dict[str, int]] = {}
    for path, size in run.sizes().items():
        name, _, relative = path.partition("/")
        if NAME.fullmatch(name) and relative:
            found.setdefault(name, {})[relative] = size
    return dict(sorted(found.items(), key=lambda each: order(each[0]), reverse=True))


def order(name: str) -> tuple[int, str]:
    """Sorts names of checkpoints, the oldest first; -1 and the name for others."""
    found = NAME.fullmatch(name)
    return (int(found[1]) if found else -1, name)


def manifest_of(run: StoreReader, name: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Return a checkpoint's manifest.

    Raises:
        CheckpointError: why the folder is not a checkpoint.
    """
    if MANIFEST not in sizes:
        raise CheckpointError(f"it has no {MANIFEST}: it was never stored to its end")
    if sizes[MANIFEST] > MANIFEST_BYTES:
        raise CheckpointError(
            f"its {MANIFEST} has {sizes[MANIFEST]} bytes, at most {MANIFEST_BYTES} are read"
        )
    try:
        manifest = _parsed(run.read(f"{name}/{MANIFEST}"))
    except OSError as error:  # of a store that is a folder
        raise CheckpointError(str(error)) from None
    for relative, digest in manifest["files"].items():
        if relative not in sizes:
            raise CheckpointError(f"{relative} is not there")
        if sizes[relative] != digest["size"]:
            raise CheckpointError(
                f"{relative} has {sizes[relative]} bytes, its manifest says {digest['size']}"
            )
    return manifest


def is_manifest(content: bytes | None) -> bool:
    """Whether a file's content is a checkpoint's manifest; None is not."""
    try:
        return content is not None and bool(_parsed(content))
    except CheckpointError:
        return False


def inside(folder: Path, name: str) -> Path:
    """Return a manifest's name as a path; a writer of the bucket must not write elsewhere."""
    if fault := archive.fault_of_name(name):
        raise CheckpointError(f"its {MANIFEST} names {name[:80]!a}, which {fault}")
    return folder / name


def _manifest(files: dict[str, Digest], model: dict[str, Any]) -> bytes:
    entries = {name: digest._asdict() for name, digest in files.items()}
    manifest = {"version": VERSION, "model": model, "files": entries}
    return json_values.text(manifest, indent=1).encode()


def _parsed(content: bytes) -> dict[str, Any]:
    """Return a manifest with the types that `_manifest` writes and names that can be files.

    A writer of the bucket can write anything, and a later error would keep a run from using the
    previous checkpoint.
    """
    try:
        manifest: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"its {MANIFEST} cannot be read: {error!r}") from None
    if not isinstance(manifest, dict):
        raise CheckpointError(f"its {MANIFEST} cannot be read: it is not an object")
    version = manifest.get("version")
    if type(version) is not int or version != VERSION:
        raise CheckpointError(
            f"its {MANIFEST} has version {str(version)[:80]}, this program reads {VERSION}"
        )
    files, model = manifest.get("files"), manifest.get("model")
    if not isinstance(files, dict) or not isinstance(model, dict):
        raise CheckpointError(f"its {MANIFEST} cannot be read: files and model are not objects")
    if not files:
        raise CheckpointError(f"its {MANIFEST} names no files")
    for name, digest in files.items():
        inside(Path(), name)
        if fault := _reserved(name):
            raise CheckpointError(f"its {MANIFEST} names {name[:80]!a}, which {fault}")
        if (
            not isinstance(digest, dict)
            or type(digest.get("size")) is not int
            or digest["size"] < 0
            or not isinstance(digest.get("sha256"), str)
            or not SHA256.fullmatch(digest["sha256"])
        ):
            raise CheckpointError(f"its {MANIFEST} has no size and sha256 of {name[:80]!r}")
    folders = {parent for name in files for parent in PurePosixPath(name).parents}
    if both := next((name for name in files if PurePosixPath(name) in folders), None):
        raise CheckpointError(f"its {MANIFEST} has {both[:80]!r} as a file and as a folder")
    weights = model.get("file")
    if weights is not None:
        if not isinstance(weights, str):
            raise CheckpointError(f"its {MANIFEST} has no name of the model's file")
        inside(Path(), weights)
        if weights not in files and PACKED not in files:
            raise CheckpointError(f"its {MANIFEST} names {weights[:80]!a}, which is not there")
    return manifest


def _reserved(name: str, *more: str) -> str:
    """Return why a file of a checkpoint cannot have this name; "" if it can."""
    first = next(part for part in name.split("/") if part not in {"", "."})
    return "is a reserved name" if first in {MANIFEST, archive.SCRATCH, *more} else ""


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
