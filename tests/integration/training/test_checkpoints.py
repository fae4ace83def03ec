"""Checkpoints in a real object store that is cut off, stopped, killed or full."""

import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from cluster.object_store import STORES
from infra.machines import tools
from tests import stores
from tests.fakes.chaos_proxy import ChaosProxy
from tests.stores import BareStore
from tests.waiting import wait_for
from trainyard.resume import checkpoint_files
from trainyard.store import objects

pytestmark = pytest.mark.integration

MODEL = {"job": "test", "classes": ["a", "b"], "file": "checkpoint.pt", "prefix": ""}
WEIGHTS = 5_000_000  # of 4 bytes: a checkpoint of three parts
BUCKET = stores.BUCKET
TMPFS_MIB = 96
FULL = r"(?i)storage ?full|no ?space|disk ?full|InsufficientStorage"


@pytest.fixture(scope="module")
def store_server(store_program, tmp_path_factory) -> Iterator[BareStore]:
    with stores.bare(STORES[tools.DEFAULT], store_program, tmp_path_factory.mktemp("s")) as server:
        yield server


@pytest.fixture
def proxy(store_server, monkeypatch) -> Iterator[ChaosProxy]:
    with ChaosProxy(store_server.port) as between:
        use(between.port, store_server, monkeypatch)
        yield between


def use(port: int, server: BareStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process's store the one behind a port."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(server.root.access))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(server.root.secret))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv(objects.PATIENCE_VARIABLE, "60")
    monkeypatch.setattr(objects, "READ_TIMEOUT_S", 2)


@pytest.fixture
def run(proxy, request) -> objects.Store:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return objects.open_url(f"s3://{BUCKET}/{name}")


def store(run: objects.Store, tmp_path: Path, number: int) -> str:
    folder = tmp_path / f"files{number}"
    folder.mkdir()
    torch.save({"model": torch.rand(WEIGHTS)}, folder / "checkpoint.pt")
    name = f"checkpoint_{number:06d}-abcd"
    checkpoint_files.store(run, name, folder, MODEL)
    return name


def choose(run: objects.Store, tmp_path: Path) -> str | None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    name, fault, _ = checkpoint_files.choose(run, scratch, had_one=True)
    assert (name is None) == bool(fault)
    if name is not None:
        original = tmp_path / f"files{int(name[11:17])}"
        for file in original.iterdir():
            assert (scratch / name / file.name).read_bytes() == file.read_bytes()
    return name


@pytest.mark.parametrize("byte", [1, 5_000_000, 12_000_000, 19_900_000, 20_001_000])
def test_a_cut_at_any_byte_is_made_good(byte, proxy, run, tmp_path):  # F22
    proxy.after(byte, proxy.cut)
    name = store(run, tmp_path, 1)
    assert proxy.done
    assert choose(run, tmp_path) == name


def test_a_store_that_stops_answering_for_a_while(proxy, run, tmp_path):  # F22
    proxy.after(9_000_000, proxy.pause)
    resume = threading.Timer(2 * objects.READ_TIMEOUT_S, proxy.resume)
    resume.start()
    try:
        name = store(run, tmp_path, 1)
    finally:
        resume.cancel()
        proxy.resume()
    assert proxy.done
    assert choose(run, tmp_path) == name


@pytest.mark.parametrize("byte", [1, 9_000_000, 20_001_000])
def test_a_store_that_stays_away_is_an_error_and_nothing_half_is_chosen(  # F22
    byte, proxy, run, tmp_path, monkeypatch
):
    earlier = store(run, tmp_path, 1)
    monkeypatch.setenv(objects.PATIENCE_VARIABLE, "1")
    proxy.after(byte, proxy.down)
    with pytest.raises(objects.StorageError) as caught:
        store(run, tmp_path, 2)
    message = str(caught.value)
    assert f"{run.where}/checkpoint_000002-abcd/" in message
    assert "within 1 s (TRAINYARD_STORE_PATIENCE_S)" in message
    assert "submit the run again" in message
    proxy.up()
    assert choose(run, tmp_path) == earlier
    assert len(checkpoint_files.valid(run)) == 1


@pytest.fixture
def small_store(store_program, tmp_path) -> Iterator[BareStore]:
    """A server whose disk holds four checkpoint_files."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    size = f"size={TMPFS_MIB}m"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    try:
        with stores.bare(STORES[tools.DEFAULT], store_program, disk) as server:
            yield server
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_an_error_and_what_was_stored_stays(  # F23
    small_store, tmp_path, monkeypatch
):
    use(small_store.port, small_store, monkeypatch)
    monkeypatch.setenv(objects.PATIENCE_VARIABLE, "5")
    run = objects.open_url(f"s3://{BUCKET}/full")
    names: list[str] = []

    def fill() -> None:
        names.extend(store(run, tmp_path, number) for number in range(1, TMPFS_MIB))

    with pytest.raises(objects.StorageError, match=FULL):
        fill()
    assert choose(run, tmp_path) == names[-1]
    checkpoint_files.prune(run, frozenset())  # makes room again
    shutil.rmtree(tmp_path / "scratch")
    numbers = itertools.count(TMPFS_MIB)

    def stored() -> bool:
        try:
            names.append(store(run, tmp_path, next(numbers)))
        except objects.StorageError:
            return False
        return True

    wait_for("room in the store", stored)
    assert choose(run, tmp_path) == names[-1]
