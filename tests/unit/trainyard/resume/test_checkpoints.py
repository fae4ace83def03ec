"""A worker's checkpoints, with Ray Train reduced to its functions."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pyarrow.fs import LocalFileSystem
from ray import train
from ray.train import CheckpointUploadMode

from trainyard.resume import checkpoint_files, checkpoints
from trainyard.store.objects import StorageError

MODEL = {"job": "test", "classes": ["a"], "file": "checkpoint.pt", "prefix": ""}


class Worker:
    """One worker of a run in a local folder: uploads in the background as Ray does, one by one."""

    def __init__(self, folder: Path, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.rank = rank
        self.reports: list[tuple[Any, str | None]] = []  # as the controller gets them
        self.uploads = ThreadPoolExecutor(1)
        self.broadcast: Callable[[Any], Any] = lambda data: data
        storage = SimpleNamespace(
            storage_filesystem=LocalFileSystem(),
            experiment_fs_path=str(folder),
            build_checkpoint_path_from_name=lambda name: str(folder / name),
        )
        context = SimpleNamespace(
            get_world_rank=lambda: rank,
            get_local_rank=lambda: rank,
            get_storage=lambda: storage,
        )
        monkeypatch.setattr(train, "get_context", lambda: context)
        monkeypatch.setattr(train, "get_checkpoint", lambda: None)
        monkeypatch.setattr(train, "report", self.report)
        monkeypatch.setattr("ray.train.collective.broadcast_from_rank_zero", self.hear)
        monkeypatch.chdir(folder.parent)
        for name, value in {"in_flight": None, "number": 0, "broken": frozenset()}.items():
            monkeypatch.setattr(checkpoints._Worker, name, value)

    def hear(self, data: Any) -> Any:
        return self.broadcast(data)

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Any = None,
        checkpoint_dir_name: str = "",
        checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
        checkpoint_upload_fn: Any = None,
        **_: Any,
    ) -> None:
        def send() -> None:
            there = checkpoint and checkpoint_upload_fn(checkpoint, checkpoint_dir_name)
            self.reports.append((metrics, there and Path(there.path).name))

        if checkpoint_upload_mode is CheckpointUploadMode.ASYNC:
            self.uploads.submit(send)
        else:
            send()

    def save(self, value: float, **options: Any) -> None:
        folder = checkpoints.new_folder()
        torch.save({"model": {"w": torch.tensor([value])}}, folder / "checkpoint.pt")
        checkpoints.report({"value": value}, folder, MODEL, **options)


@pytest.fixture
def worker(tmp_path, monkeypatch) -> Any:
    (tmp_path / "run").mkdir()
    worker = Worker(tmp_path / "run", 0, monkeypatch)
    yield worker
    worker.uploads.shutdown()


def value(folder: Path | None) -> float | None:
    if folder is None:
        return None
    weights: torch.Tensor = checkpoint_files.load(folder / "checkpoint.pt")["model"]["w"]
    return weights.item()


def test_training_goes_on_while_one_checkpoint_is_stored_and_waits_for_the_next(worker):
    events: list[str] = []
    hold = threading.Event()

    def stored() -> None:
        # A checkpoint is reported once it can be restored.
        events.append(f"{len(list(worker.folder.glob('*/manifest.json')))} stored")
        assert hold.wait(60)

    worker.save(1, stored=stored)
    events.append("trained on")
    hold.set()
    worker.save(2, stored=stored)  # at the latest now the first is stored
    assert "1 stored" in events[:2]
    checkpoints.report({"value": 3})
    worker.uploads.shutdown()
    assert [metrics["value"] for metrics, _ in worker.reports] == [1, 2, 3]  # none lost, in order
    names = [name and name[:17] for _, name in worker.reports]
    assert names == ["checkpoint_000001", "checkpoint_000002", None]


def test_the_second_waits_until_the_first_is_stored(worker):
    hold, begun = threading.Event(), threading.Event()
    worker.save(1, stored=lambda: (begun.set(), hold.wait(60))[0])
    assert begun.wait(60)
    second = threading.Thread(target=worker.save, args=(2,))
    second.start()
    second.join(0.5)
    assert second.is_alive()
    assert len(list(worker.folder.glob("checkpoint_*"))) == 1
    hold.set()
    second.join(60)
    assert not second.is_alive()


def test_it_is_stored_while_rays_thread_waits_for_the_controller(worker):  # P8
    polled = threading.Event()
    waits = worker.uploads.submit(polled.wait, 20)
    worker.save(1, wait=True)
    assert not waits.done()
    assert not [*Path.cwd().glob(f"{checkpoints.SCRATCH_PREFIX}*")]
    polled.set()


def test_what_could_not_be_stored_ends_the_worker(worker, monkeypatch):  # F22
    told: list[int] = []
    monkeypatch.setattr(checkpoints, "store", Mock(side_effect=StorageError("the disk is full")))
    worker.save(1, stored=lambda: told.append(1))
    with pytest.raises(StorageError, match="the disk is full"):
        worker.save(2)
    assert not told
    assert not worker.reports


def test_other_ranks_report_and_store_nothing(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    worker = Worker(tmp_path / "run", 1, monkeypatch)
    worker.save(1)
    assert worker.reports == [({"value": 1}, None)]
    assert not list(worker.folder.iterdir())


def test_a_record_that_cannot_be_written_ends_no_run(worker, capfd):
    worker.save(1, stored=Mock(side_effect=StorageError("the store is away")), wait=True)
    said = capfd.readouterr().out
    assert "is stored, but not everything that belongs to it: the store is away" in said
    worker.save(2, wait=True)
    with checkpoints.restore_newest() as folder:
        assert folder is not None
        assert folder.name.startswith("checkpoint_000002-")


@pytest.mark.parametrize("error", [StorageError, OSError, TypeError])
def test_pruning_ends_no_run(worker, error, monkeypatch, capfd):
    worker.save(1, wait=True)
    monkeypatch.setattr(checkpoint_files, "candidates", Mock(side_effect=error("as it is")))
    worker.save(2, wait=True)
    assert "warning: old checkpoints stay for now: " in capfd.readouterr().out
    assert len(list(worker.folder.glob("*/manifest.json"))) == 2


def test_what_was_stored_last_is_restored_and_the_copy_removed(worker, tmp_path):
    with checkpoints.restore_newest() as folder:
        assert value(folder) is None
    for number in (1, 2, 3):
        worker.save(number)
    worker.uploads.shutdown()
    left = checkpoints.new_folder()  # by a killed worker
    with checkpoints.restore_newest() as folder:
        assert value(folder) == 3
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_who_waits_finds_it_stored(worker):  # D46
    told: list[int] = []

    def stored() -> None:
        time.sleep(0.2)  # a worker that does not wait is further by then
        told.append(len(list(worker.folder.iterdir())))

    worker.save(1, stored=stored, wait=True)
    assert told == [1]
    (manifest,) = worker.folder.glob("*/manifest.json")
    assert json.loads(manifest.read_text())["model"] == MODEL


def test_a_checkpoint_that_another_is_storing_stays(worker):  # F71
    worker.save(1, wait=True)
    other = worker.folder / "checkpoint_000007-half"
    other.mkdir()
    (other / "checkpoint.pt").write_bytes(b"half of it")
    worker.save(2, wait=True)
    assert (other / "checkpoint.pt").exists()


def test_what_was_cut_off_is_removed_when_the_run_goes_on(worker):  # F16 F21
    worker.save(1, wait=True)
    cut = worker.folder / "checkpoint_000002-half"  # its worker was killed before the manifest
    cut.mkdir()
    (cut / "checkpoint.pt").write_bytes(b"half of it")
    (cut / ".manifest.json.part").write_bytes(b"{")
    with checkpoints.restore_newest() as folder:
        assert value(folder) == 1
    assert not cut.exists()


def test_another_rank_takes_what_the_first_has_chosen(worker, tmp_path, monkeypatch):
    worker.save(1)
    worker.save(2)
    worker.uploads.shutdown()
    first, newest = sorted(path.name for path in worker.folder.iterdir())
    other = Worker(worker.folder, 1, monkeypatch)
    other.broadcast = lambda _: (first, "")
    with checkpoints.restore_newest() as folder:
        assert value(folder) == 1
    other.broadcast = lambda _: (None, "none is valid")
    with (
        pytest.raises(checkpoint_files.CheckpointError, match="none is valid"),
        checkpoints.restore_newest(),
    ):
        pass
    assert sorted(path.name for path in worker.folder.iterdir()) == [first, newest]


def test_a_new_name_is_greater_than_all_and_never_the_same(worker):
    for name in ("checkpoint_000007-abcd", "checkpoint_000009-half"):
        (worker.folder / name).mkdir()
        (worker.folder / name / "checkpoint.pt").touch()
    run = checkpoints._run_folder()
    first, second = checkpoints._next_name(run), checkpoints._next_name(run)
    assert first.startswith("checkpoint_000010-")
    assert second.startswith("checkpoint_000011-")
    checkpoints._Worker.number = 0
    assert checkpoints._next_name(run) != first
