"""Valid and invalid checkpoints, on a local store."""

import gzip
import hashlib
import json
import os
import pickle
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.hostile import Canary
from trainyard.resume import checkpoint_files
from trainyard.store import objects

MODEL = {"job": "test", "classes": ["a", "b"], "file": "checkpoint.pt", "prefix": ""}
BIG = os.urandom(checkpoint_files.SMALL_BYTES + 1)


@pytest.fixture
def run(tmp_path) -> objects.Store:
    (tmp_path / "run").mkdir()
    return objects.open_url((tmp_path / "run").as_uri())


def store(run: objects.Store, tmp_path: Path, number: int, **files: bytes) -> Path:
    """A checkpoint of a tensor, and its folder in the store."""
    folder = tmp_path / f"files{number}"
    folder.mkdir()
    torch.save({"model": {"w": torch.full((4,), number)}}, folder / "checkpoint.pt")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    name = f"checkpoint_{number:06d}-abcd"
    checkpoint_files.store(run, name, folder, MODEL)
    return tmp_path / "run" / name


def choose(
    run: objects.Store, tmp_path: Path, *, had_one: bool = False
) -> checkpoint_files.ResumePoint:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return checkpoint_files.choose(run, scratch, had_one=had_one)


def test_what_is_stored_comes_back_byte_for_byte(run, tmp_path):
    there = store(run, tmp_path, 1, big=BIG)
    names = sorted(path.name for path in there.iterdir())
    assert names == ["big", "checkpoint.pt", "manifest.json"]
    manifest = json.loads((there / "manifest.json").read_text())
    assert manifest["model"] == MODEL
    digest = hashlib.sha256(BIG).hexdigest()
    assert manifest["files"]["big"] == {"size": len(BIG), "sha256": digest}
    assert choose(run, tmp_path) == (there.name, "", frozenset())
    name = there.name
    assert (tmp_path / "scratch" / name / "big").read_bytes() == BIG
    assert set(checkpoint_files.load(tmp_path / "scratch" / name / "checkpoint.pt")) == {"model"}


def test_many_small_files_are_one_large_one(run, tmp_path):
    small = {f"part{i}": bytes([i]) * 1000 for i in range(20)}
    there = store(run, tmp_path, 1, big=BIG, **small)
    assert sorted(path.name for path in there.iterdir()) == ["big", "manifest.json", "packed.tar"]
    target = tmp_path / "fetched"
    manifest = checkpoint_files.fetch(run, there.name, target)
    assert manifest["model"] == MODEL
    assert {p.name: p.read_bytes() for p in target.glob("part*")} == small
    assert not (target / "packed.tar").exists()


def test_a_manifest_written_in_place_makes_a_valid_checkpoint(run, tmp_path):
    folder = tmp_path / "run" / "checkpoint_000001-abcd"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_bytes(b"x")
    checkpoint_files.write_manifest(folder, {"file": "deep/file"})
    [(name, manifest)] = checkpoint_files.valid(run)
    assert (name, manifest["model"]) == (folder.name, {"file": "deep/file"})
    checkpoint_files.fetch(run, name, tmp_path / "fetched")
    assert (tmp_path / "fetched" / "deep" / "file").read_bytes() == b"x"


def test_the_newest_is_first(run, tmp_path):
    for number in (9, 10, 2):
        store(run, tmp_path, number)
    numbers = [name[11:17] for name, _ in checkpoint_files.valid(run)]
    assert numbers == ["000010", "000009", "000002"]


def damage(kind: str, there: Path, canary: Path) -> None:  # noqa: PLR0912 - a kind each
    file, manifest = there / "checkpoint.pt", there / "manifest.json"
    content = file.read_bytes()
    if kind == "truncated":
        file.write_bytes(content[:-1])
    elif kind == "flipped":
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    elif kind == "missing":
        file.unlink()
    elif kind == "no manifest":
        manifest.unlink()
    elif kind == "half a manifest":
        manifest.write_text(manifest.read_text()[:40])
    elif kind == "another version":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 2}))
    elif kind == "no files":
        write_odd(there, {"files": {}})
    elif kind == "weights that are not there":
        write_odd(there, {"model": MODEL | {"file": "other.pt"}})
    elif kind == "a large manifest":
        with manifest.open("ab") as file_:
            file_.truncate(checkpoint_files.MANIFEST_BYTES + 1)
    elif kind.startswith("packed"):
        file.unlink()
        with tarfile.open(there / "packed.tar", "w") as tar:
            if kind != "packed of nothing":
                tar.add(__file__, "checkpoint.pt" if kind == "packed, cut off" else "other")
            if kind == "packed with a manifest":
                tar.add(__file__, "manifest.json/x")
        if kind == "packed, cut off":  # and compressed
            whole = gzip.compress((there / "packed.tar").read_bytes())
            (there / "packed.tar").write_bytes(whole[: len(whole) // 2])
        manifest.unlink()
        checkpoint_files.write_manifest(there, MODEL if kind == "packed, cut off" else {})
    else:  # anyone who can write to the bucket can write a manifest that fits
        if kind == "another file":  # than the description names
            torch.save({"model": Canary(canary)}, there / "checkpoint.ckpt")
        if kind == "pickle":
            file.write_bytes(pickle.dumps(Canary(canary)))
        elif kind == "pickle in a zip":
            torch.save({"model": Canary(canary)}, file)
        manifest.unlink()
        checkpoint_files.write_manifest(there, MODEL)
        if kind == "outside":
            text = manifest.read_text().replace('"checkpoint.pt": {', '"../../checkpoint.pt": {')
            manifest.write_text(text)


DAMAGES = {
    "truncated": "checkpoint.pt has .* bytes, its manifest says",
    "flipped": "checkpoint.pt has .* with sha256 .*, its manifest says",
    "missing": "checkpoint.pt is not there",
    "no manifest": "it has no manifest.json",
    "half a manifest": "its manifest.json cannot be read",
    "another version": "its manifest.json has version 2, this program reads 1",
    "pickle": "checkpoint.pt does not hold tensors and plain values only",
    "pickle in a zip": "checkpoint.pt does not hold tensors and plain values only",
    "another file": r"checkpoint.ckpt does not hold tensors and plain values only",
    "no files": "its manifest.json names no files",
    "weights that are not there": "its manifest.json names 'other.pt', which is not there",
    "a large manifest": "its manifest.json has .* bytes, at most",
    "packed, cut off": r"packed\.tar cannot be unpacked: it is (cut off|damaged)",
    "packed of nothing": r"packed\.tar holds no files",
    "packed with a manifest": r"packed\.tar holds a manifest\.json",
    "outside": "names '../../checkpoint.pt', which is not inside|is not there",
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_newest_is_skipped_with_a_warning_that_names_it(  # F22 F23 F40 F53
    kind, run, tmp_path, capfd
):
    earlier = store(run, tmp_path, 1)
    newest = store(run, tmp_path, 2)
    damage(kind, newest, tmp_path / "canary")
    assert choose(run, tmp_path) == (earlier.name, "", {newest.name})
    [warning] = capfd.readouterr().out.splitlines()
    assert warning.startswith(f"warning: checkpoint {newest.name} is skipped: ")
    assert re.search(DAMAGES[kind], warning), warning
    assert not (tmp_path / "canary").exists()
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == [earlier.name]


ENTRY = {"size": 1, "sha256": "0" * 64}
ODD_MANIFESTS: dict[str, Any] = {
    "a list": [],
    "a number": 7,
    "nothing": None,
    "no files": {"files": None},
    "files in a list": {"files": [["checkpoint.pt", ENTRY]]},
    "no model": {"model": None},
    "a version that is true": {"version": True},
    "a version of 1.0": {"version": 1.0},
    "a version that is a list": {"version": [1]},
    "no digest": {"files": {"checkpoint.pt": None}},
    "a digest in a list": {"files": {"checkpoint.pt": [1, "0" * 64]}},
    "a size as text": {"files": {"checkpoint.pt": ENTRY | {"size": "1"}}},
    "a size as a float": {"files": {"checkpoint.pt": ENTRY | {"size": 1.0}}},
    "a size below 0": {"files": {"checkpoint.pt": ENTRY | {"size": -1}}},
    "a sum as a number": {"files": {"checkpoint.pt": ENTRY | {"sha256": 0}}},
    "a sum that is short": {"files": {"checkpoint.pt": ENTRY | {"sha256": "00"}}},
    "a manifest as a file": {"files": {"./manifest.json": ENTRY}},
    "weights as a number": {"model": {"file": 7}},
    "weights as a list": {"model": {"file": ["checkpoint.pt"]}},
    "weights outside": {"model": {"file": "../checkpoint.pt"}},
    "weights with NUL": {"model": {"file": "checkpoint.pt\0"}},
    "weights of half a character": {"model": {"file": "\ud800"}},
    "weights with a long name": {"model": {"file": "x" * 256}},
    "a file and a folder of one name": {"files": {"a": ENTRY, "a/b": ENTRY}},
    "a name of nothing": {"files": {"": ENTRY}},
    "a name of 10 kB": {"files": {"x/" * 5000 + "x": ENTRY}},
    "levels": b"[" * 100_000,
    "a long number": b'{"version": ' + b"1" * 5000,
    "no text": b"\xff",
    "an empty file": b"",
    "NaN": b"NaN",
}


def write_odd(there: Path, change: Any) -> None:
    """A manifest as it was, changed as anyone who can write to the bucket could."""
    manifest = there / "manifest.json"
    if isinstance(change, dict):
        change = json.loads(manifest.read_text()) | change
    manifest.write_bytes(change if isinstance(change, bytes) else json.dumps(change).encode())


@pytest.mark.parametrize("kind", ODD_MANIFESTS)
def test_a_manifest_of_odd_types_gives_way_to_the_checkpoint_before(  # F23, F40
    kind, run, tmp_path
):
    earlier, newest = store(run, tmp_path, 1), store(run, tmp_path, 2)
    write_odd(newest, ODD_MANIFESTS[kind])
    assert choose(run, tmp_path) == (earlier.name, "", {newest.name})
    assert [name for name, _ in checkpoint_files.valid(run)] == [earlier.name]
    with pytest.raises(checkpoint_files.CheckpointError):
        checkpoint_files.fetch(run, newest.name, tmp_path / "fetched")
    checkpoint_files.prune(run, frozenset())
    assert earlier.is_dir()


def test_a_folder_of_another_name_is_no_checkpoint(run, tmp_path):  # F53
    there = store(run, tmp_path, 1)
    for name in ("checkpoint_zz", "checkpoint_", "checkpoint_9x", "checkpoint_9-A"):
        shutil.copytree(there, there.parent / name)
    assert choose(run, tmp_path).name == there.name
    later = store(run, tmp_path, 1_000_000)  # more digits than all before
    assert choose(run, tmp_path).name == later.name


@pytest.mark.parametrize("name", ["", "manifest.json", "packed.tar", ".unpacking"])
def test_what_could_not_be_restored_is_not_stored(name, run, tmp_path):  # F53
    folder = tmp_path / "files"
    folder.mkdir()
    if name:
        (folder / name).write_bytes(b"x")
    with pytest.raises(
        checkpoint_files.CheckpointError, match=r"has no files|reserved name: rename"
    ):
        checkpoint_files.store(run, "checkpoint_000001-abcd", folder, {})
    assert run.sizes() == {}


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "no manifest"])
def test_none_valid_is_an_error_and_no_fresh_start(kind, run, tmp_path):
    damage(kind, store(run, tmp_path, 1), tmp_path / "canary")
    name, fault, _ = choose(run, tmp_path)
    assert name is None
    assert "none of the 1 checkpoints in file://" in fault
    assert "another --name" in fault


def test_half_a_first_checkpoint_is_none_unless_there_was_one(run, tmp_path):
    damage("no manifest", store(run, tmp_path, 1), tmp_path)
    assert choose(run, tmp_path)[:2] == (None, "")
    assert "none of the 1" in choose(run, tmp_path, had_one=True).fault
    run.delete(*run.sizes())
    assert choose(run, tmp_path) == (None, "", frozenset())
    assert "none of the 0" in choose(run, tmp_path, had_one=True).fault


def test_a_manifest_that_names_a_file_outside_writes_nothing_there(run, tmp_path):  # F40
    there = store(run, tmp_path, 1)
    content = (there / "checkpoint.pt").read_bytes()
    (tmp_path / "run" / "stolen").write_bytes(content)
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest = {"version": 1, "model": MODEL, "files": {"../stolen": entry}}
    (there / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(checkpoint_files.CheckpointError, match="not inside its folder"):
        checkpoint_files.fetch(run, there.name, tmp_path / "a" / "b")
    assert not (tmp_path / "a" / "stolen").exists()


def test_the_newest_two_stay(run, tmp_path):
    for number in range(1, 5):
        store(run, tmp_path, number)
        checkpoint_files.prune(run, frozenset())
    left = sorted(path.name[11:17] for path in (tmp_path / "run").iterdir())
    assert left == ["000003", "000004"]


def test_a_version_of_a_model_stays_as_long_as_its_run(run, tmp_path):
    (store(run, tmp_path, 1) / checkpoint_files.MLFLOW_MODEL).write_text("added for MLflow")
    store(run, tmp_path, 2, **{checkpoint_files.MLFLOW_MODEL: BIG})  # a file of the job's own
    damaged = store(run, tmp_path, 3)
    (damaged / checkpoint_files.MLFLOW_MODEL).write_text("added for MLflow")
    damage("truncated", damaged, tmp_path)
    for number in (4, 5, 6):
        store(run, tmp_path, number)
        checkpoint_files.prune(run, frozenset())
    left = sorted(path.name[11:17] for path in (tmp_path / "run").iterdir())
    assert left == ["000001", "000005", "000006"]


def test_pruning_never_counts_on_a_damaged_one(run, tmp_path):
    store(run, tmp_path, 1)
    damage("truncated", store(run, tmp_path, 2), tmp_path)
    damage("no manifest", store(run, tmp_path, 3), tmp_path)
    damage("flipped", store(run, tmp_path, 4), tmp_path)  # only a reader notices it
    name, _, broken = choose(run, tmp_path)
    assert name == "checkpoint_000001-abcd"
    checkpoint_files.prune(run, broken)
    left = sorted(path.name[11:17] for path in (tmp_path / "run").iterdir())
    assert left == ["000001", "000002", "000004"]  # the third is useless
    store(run, tmp_path, 5)
    checkpoint_files.prune(run, broken)
    left = sorted(path.name[11:17] for path in (tmp_path / "run").iterdir())
    assert left == ["000001", "000005"]


def test_what_the_store_cut_off_gets_no_manifest(run, tmp_path, monkeypatch):  # F22
    upload = run.upload

    def cut(name: str, source: Any) -> Any:
        digest = upload(name, source)
        os.truncate(tmp_path / "run" / name, 5)
        return digest

    monkeypatch.setattr(run, "upload", cut)
    with pytest.raises(objects.StorageError, match="has 5 bytes after"):
        store(run, tmp_path, 1)
    assert checkpoint_files.valid(run) == []


def test_an_incomplete_one_stays_while_none_is_whole(run, tmp_path):  # F23
    damage("no manifest", store(run, tmp_path, 1), tmp_path)
    damage("truncated", store(run, tmp_path, 2), tmp_path)
    checkpoint_files.prune(run, frozenset())
    assert len([*(tmp_path / "run").iterdir()]) == 2


def test_one_that_is_half_removed_has_no_manifest(run, tmp_path, monkeypatch):  # F22
    for number in (1, 2, 3):
        store(run, tmp_path, number, big=BIG)
    delete = run.delete

    def breaks(*names: str) -> None:
        delete(names[0])
        if len(names) > 1:
            raise objects.StorageError("the store went away")

    monkeypatch.setattr(run, "delete", breaks)
    checkpoint_files.prune(run, frozenset())
    left = [path.name for path in (tmp_path / "run" / "checkpoint_000001-abcd").iterdir()]
    assert left
    assert "manifest.json" not in left
