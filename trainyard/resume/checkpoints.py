"""Checkpoints in a worker of Ray Train: reported while training goes on, restored on all ranks.

Ray Train gets each checkpoint, but the list of checkpoints is read from the store
(trainyard/resume/checkpoint_files.py): Ray's own list has some that were damaged or removed, and
lacks one whose last report was lost with the worker.
"""

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem
from ray import train
from ray.train import CheckpointUploadMode, collective
from ray.util import get_node_ip_address

from trainyard.housekeeping import housekeeping
from trainyard.report import progress
from trainyard.resume.checkpoint_files import (
    PREFIX,
    CheckpointError,
    candidates,
    choose,
    fetch,
    order,
    prune,
    store,
)
from trainyard.store.objects import Store, open_folder

SCRATCH_PREFIX = "trainyard-checkpoint-"


class _Worker:
    """State of one worker process between its reports."""

    uploads = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
    in_flight: Future[None] | None = None
    number = 0  # of the newest folder, whole or not; 0: not known yet
    broken: frozenset[str] = frozenset()


def new_folder() -> Path:
    """Return an empty folder for a checkpoint; `restore_newest` removes killed workers' folders."""
    return Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=Path.cwd()))


def report(
    metrics: dict[str, Any],
    folder: Path | None = None,
    model: dict[str, Any] | None = None,
    stored: Callable[[], None] | None = None,
    *,
    wait: bool = False,
) -> None:
    """Reports to Ray Train; every rank calls it, and the first one gives the checkpoint.

    Another thread stores the checkpoint, at most one at a time: training continues meanwhile,
    and the next report waits for it. The last checkpoint is stored before the worker ends.

    Args:
        metrics: of this report.
        folder: the checkpoint's files; removed once they are stored. None: no checkpoint.
        model: as for `write_manifest`.
        stored: is called by that thread once the checkpoint can be restored; only the next report
            and callers that set `wait` wait for it.
        wait: wait until it is stored. Training stops for it, and losing a worker costs only the
            training since then: at most one interval.

    Raises:
        StorageError: the previous checkpoint could not be stored; with `wait` also this one.
    """
    if train.get_context().get_world_rank() != 0:
        train.report(metrics)
        return
    if _Worker.in_flight is not None:
        _Worker.in_flight.result()
    if folder is None:
        train.report(metrics, checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        return
    run = _run_folder()
    name = _next_name(run)
    # Not by Ray's thread for uploads: after one it waits for the controller, which takes reports at
    # its polls.
    done = _Worker.uploads.submit(_upload, run, name, folder, model or {}, stored)
    _Worker.in_flight = done

    def uploaded(_checkpoint: train.Checkpoint, _name: str) -> train.Checkpoint:
        done.result()
        storage = train.get_context().get_storage()
        path = storage.build_checkpoint_path_from_name(name)
        return train.Checkpoint(path, storage.storage_filesystem)

    train.report(
        metrics,
        train.Checkpoint.from_directory(folder),
        checkpoint_dir_name=name,
        checkpoint_upload_mode=CheckpointUploadMode.ASYNC,
        checkpoint_upload_fn=uploaded,
        delete_local_checkpoint_after_upload=False,  # we do
    )
    if wait:
        done.result()


def _upload(
    run: Store,
    name: str,
    folder: Path,
    model: dict[str, Any],
    stored: Callable[[], None] | None,
) -> None:
    store(run, name, folder, model)
    if stored is not None:
        # The checkpoint can be restored; the run that resumes from it does the rest.
        with housekeeping(f"{name} is stored, but not everything that belongs to it"):
            stored()
    # Ray's own thread would keep it until the controller's poll.
    shutil.rmtree(folder, ignore_errors=True)
    prune(run, _Worker.broken, unfinished=False)  # another may be storing one


def settle() -> None:
    """Waits until the last reported checkpoint is stored, or could not be."""
    if _Worker.in_flight is not None:
        _Worker.in_flight.exception()


@contextmanager
def restore_newest(check: Callable[[Path], None] | None = None) -> Iterator[Path | None]:
    """The newest valid checkpoint of the run, the same on all ranks; every rank calls it.

    Args:
        check: raises CheckpointError where the job cannot use the files in the given folder: then
            the previous checkpoint is used.

    Yields:
        A folder with the checkpoint's name, files and manifest, removed at the end; None before the
        first checkpoint.

    Raises:
        CheckpointError: checkpoints exist and none is valid. On all ranks.
    """
    context = train.get_context()
    first = context.get_world_rank() == 0
    if context.get_local_rank() == 0:
        # Before any other rank of this machine makes a folder, after the broadcast.
        for left in Path.cwd().glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
    run = _run_folder()
    scratch = new_folder() if first else None
    try:
        found: tuple[str | None, str] | None = None
        if scratch is not None:
            had_one = train.get_checkpoint() is not None
            choice = choose(run, scratch, had_one=had_one, check=check)
            _Worker.broken = choice.broken
            prune(run, choice.broken)  # incomplete checkpoints may fill the store
            found = choice.name, choice.fault
        name, fault = collective.broadcast_from_rank_zero(found)
        if fault:
            raise CheckpointError(fault)
        if name is None:
            yield None
            return
        if scratch is None:
            scratch = new_folder()
            fetch(run, name, scratch / name)
        yield scratch / name
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def get_checkpoint() -> train.Checkpoint | None:
    """As ray.train.get_checkpoint, but the newest valid checkpoint; every rank calls it.

    Its `as_directory` removes the local files at the end; the first rank says what it restores.

    Raises:
        CheckpointError: checkpoints exist and none is valid. On all ranks.
    """
    stack = ExitStack()
    folder = stack.enter_context(restore_newest())
    if folder is None:
        return None
    if train.get_context().get_world_rank() == 0:
        where = f"{_run_folder().where}/{folder.name}"
        node = get_node_ip_address()  # type: ignore[no-untyped-call]
        progress.print_record(progress.Restored(where, epochs=None, node=node))
    return _Fetched(folder, stack)


class _Fetched(train.Checkpoint):
    """A checkpoint in a local folder of this worker."""

    def __init__(self, folder: Path, kept: ExitStack) -> None:
        super().__init__(str(folder), LocalFileSystem())
        self._kept = kept

    @contextmanager
    def as_directory(self) -> Iterator[str]:
        with self._kept:
            yield self.path


def _next_name(run: Store) -> str:
    """Return a name that sorts after all folders, and that no worker taken for dead has."""
    if not _Worker.number:
        _Worker.number = max((order(name)[0] for name in candidates(run)), default=0)
    _Worker.number += 1
    return f"{PREFIX}{_Worker.number:06d}-{secrets.token_hex(2)}"


def _run_folder() -> Store:
    storage = train.get_context().get_storage()
    return open_folder(storage.storage_filesystem, storage.experiment_fs_path)
