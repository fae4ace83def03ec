"""A run's model in one line, from a pulled run or from the store."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import trainyard
from trainyard import models
from trainyard.errors import JobError
from trainyard.resume import checkpoint_files
from trainyard.resume.checkpoint_files import CheckpointError
from trainyard.store import objects

MODEL = {"architecture": "mobilenet_v2", "classes": ["a", "b"], "file": "w.pt", "prefix": "model."}


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    return models.build("mobilenet_v2", 2)


@pytest.fixture
def stored(tmp_path, network) -> Callable[..., Path]:
    """A checkpoint of `results/first`, as a pull leaves it; or as the store has it, packed."""

    def make(
        number: int, value: float, model: dict[str, object] = MODEL, *, packed: bool = False
    ) -> Path:
        folder = tmp_path / "results" / "first" / f"checkpoint_{number:06d}-abcd"
        files = tmp_path / f"files{number}" if packed else folder
        files.mkdir(parents=True)
        weights = {f"model.{k}": torch.full_like(v, value) for k, v in network.state_dict().items()}
        torch.save({"state_dict": weights}, files / "w.pt")
        if packed:
            for name in ("x", "y"):
                (files / name).write_text(name)
            checkpoint_files.store(objects.FolderStore(folder.parent), folder.name, files, model)
        else:
            checkpoint_files.write_manifest(files, model)
        return folder

    return make


def bias(model: torch.nn.Module) -> float:
    return float(model.state_dict()["classifier.1.bias"][0])


def test_the_newest_valid_model_is_set_to_evaluate(stored, tmp_path, monkeypatch):  # C6
    monkeypatch.chdir(tmp_path)
    stored(1, 1.0)
    newest = stored(2, 2.0)
    model = trainyard.load("first")
    assert not model.training
    assert bias(model) == 2.0
    content = bytearray((newest / "w.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "w.pt").write_bytes(content)
    assert bias(trainyard.load("first")) == 1.0
    (newest.parent / "checkpoint_000001-abcd" / "w.pt").unlink()
    with pytest.raises(CheckpointError, match=r"2-abcd: w.pt does not match .*1-abcd: w.pt"):
        trainyard.load("first")


def test_a_node_has_the_store(stored, tmp_path, monkeypatch):
    stored(1, 3.0, packed=True)
    monkeypatch.setenv("TRAINYARD_STORAGE_URL", (tmp_path / "results").as_uri())
    assert bias(trainyard.load("first", tmp_path / "elsewhere")) == 3.0


def test_what_cannot_be_loaded_says_what_to_do(stored, tmp_path, monkeypatch):
    monkeypatch.delenv("TRAINYARD_STORAGE_URL", raising=False)
    results = tmp_path / "results"
    with pytest.raises(JobError, match=r"is not in .*results: bring it with `train pull first`"):
        trainyard.load("first", results)
    with pytest.raises(ValueError, match="is not 1 to 63"):
        trainyard.load("../first", results)
    (results / "first").mkdir(parents=True)
    with pytest.raises(JobError, match="has no checkpoint in"):
        trainyard.load("first", results)
    (results / "first" / "output").mkdir()
    (results / "first" / "output" / "model.txt").write_text("weights")
    with pytest.raises(JobError, match=r"has no checkpoint in .*: what it has left is in output/"):
        trainyard.load("first", results)
    stored(1, 1.0, {"file": "w.pt"})
    missing = r"not describe its model \(architecture, classes, prefix\): .* network=network\(\)"
    with pytest.raises(JobError, match=missing):
        trainyard.load("first", results)


def test_a_network_of_ones_own_gets_the_weights(stored, tmp_path):
    folder = stored(1, 4.0, {"file": "w.pt", "prefix": "model."})
    for given in (("first", tmp_path / "results"), (folder,)):
        model = trainyard.load(*given, network=models.build("mobilenet_v2", 2))
        assert bias(model) == 4.0
        assert not model.training
