"""Answers from a checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from tests.hostile import Canary
from trainyard import models
from trainyard.data import food11
from trainyard.data.transforms import to_tensor
from trainyard.errors import JobError
from trainyard.jobs import alexnet
from trainyard.models.alexnet import IMAGE_SIZE
from trainyard.resume import checkpoint_files
from trainyard.serving import deploy, likeliest
from trainyard.serving.predictor import Predictor
from trainyard.tracking.run_folder import CHECKPOINT_FILE

CLASSES = ["bread", "egg", "rice"]
CROPPED = {"crop": True, "mean": list(food11.MEAN), "std": list(food11.STD)}
PLAIN = {"mean": [0.5] * 3, "std": [0.25] * 3}
CUT = {"resized_side": 40, "mean": [], "std": []}  # as the alexnet job's CIFAR-10


def picture(width: int, height: int) -> Image.Image:
    generator = torch.Generator().manual_seed(width)
    small = torch.randint(0, 256, (5, 7, 3), dtype=torch.uint8, generator=generator).numpy()
    return Image.fromarray(small).resize((width, height))


def describe(**changes: Any) -> dict[str, Any]:
    return {
        "architecture": "mobilenet_v2",
        "classes": CLASSES,
        "image_side": 32,
        "file": "checkpoint.ckpt",
        "prefix": "model.",
    } | changes


def saved(folder: Path, architecture: str, file: str = "checkpoint.ckpt") -> torch.nn.Module:
    torch.manual_seed(1)
    network = models.build(architecture, len(CLASSES)).eval()
    state = {f"model.{name}": value for name, value in network.state_dict().items()}
    torch.save({"state_dict": state | {"loss.weight": torch.ones(1)}, "epoch": 3}, folder / file)
    return network


@pytest.mark.parametrize("architecture", ["mobilenet_v2", "resnet18"])
@pytest.mark.parametrize("transform", [CROPPED, PLAIN, CUT])
def test_the_answer_is_the_models_own(architecture, transform, tmp_path):  # A46
    network = saved(tmp_path, architecture)
    predictor = Predictor(tmp_path, describe(architecture=architecture, **transform))
    images = [picture(50, 40), picture(33, 90)]
    if "resized_side" in transform:
        own = [v2.functional.center_crop(to_tensor(40)(image), [32, 32]) for image in images]
    elif "crop" in transform:
        own = [food11._transform(32, [])(image) for image in images]
    else:
        own = [(to_tensor(32)(image) - 0.5) / 0.25 for image in images]
    assert torch.allclose(torch.stack([predictor.prepare(i) for i in images]), torch.stack(own))
    found = predictor.probabilities(torch.stack([predictor.prepare(i) for i in images]))
    with torch.no_grad():
        assert torch.allclose(found, network(torch.stack(own)).softmax(1), rtol=0, atol=1e-5)
    assert predictor.epochs == 4


def test_what_the_alexnet_job_stores_is_served(tmp_path):  # A46
    torch.manual_seed(1)
    network = models.build("alexnet", len(CLASSES)).eval()
    torch.save({"model": network.state_dict(), "history": [{}, {}]}, tmp_path / CHECKPOINT_FILE)
    model = alexnet.DESCRIPTION | {"classes": CLASSES, "image_side": IMAGE_SIZE}
    predictor = Predictor(tmp_path, model)
    own = torch.stack([to_tensor(IMAGE_SIZE)(picture(90, 70))])
    found = predictor.probabilities(torch.stack([predictor.prepare(picture(90, 70))]))
    with torch.no_grad():
        assert torch.allclose(found, network(own).softmax(1), rtol=0, atol=1e-5)
    assert predictor.epochs == 2


def test_an_answer_names_the_likeliest_class_first():
    found = likeliest(CLASSES, [0.25, 0.5, 0.125])
    assert (found["class"], found["probability"]) == ("egg", 0.5)
    assert [each["class"] for each in found["top"]] == ["egg", "bread", "rice"]


def test_weights_that_are_not_the_models_are_refused(tmp_path):
    saved(tmp_path, "resnet18")
    with pytest.raises(RuntimeError):
        Predictor(tmp_path, describe(**PLAIN))
    with pytest.raises(ValueError, match="'vgg' is not one of"):
        Predictor(tmp_path, describe(architecture="vgg", **PLAIN))
    torch.save({"optimizer": {}}, tmp_path / "checkpoint.ckpt")
    with pytest.raises(ValueError, match=r"checkpoint.ckpt has none of state_dict, model"):
        Predictor(tmp_path, describe(**PLAIN))


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path):  # F40
    torch.save({"state_dict": Canary(tmp_path / "canary")}, tmp_path / "checkpoint.ckpt")
    with pytest.raises(Exception, match=r"weights_only|Weights only"):
        Predictor(tmp_path, describe(**PLAIN))
    assert not (tmp_path / "canary").exists()


def checkpoint(storage: Path, number: int, weight: Any, model: dict[str, Any]) -> str:
    """Stores a checkpoint of the run `run`; returns its name."""
    folder = storage / "run" / f"checkpoint_{number:06d}-abcd"
    folder.mkdir(parents=True)
    torch.save({"state_dict": {"w": weight}}, folder / "checkpoint.ckpt")
    checkpoint_files.write_manifest(folder, model)
    return folder.name


def test_the_newest_checkpoint_that_is_whole_is_chosen(tmp_path, capsys):  # F23
    names = [checkpoint(tmp_path, n, torch.zeros(1), describe(**PLAIN)) for n in (1, 2, 3)]
    storage = tmp_path.as_uri()
    assert deploy._choose(storage, "run", None) == names[2]
    file = tmp_path / "run" / names[2] / "checkpoint.ckpt"
    file.write_bytes(b"x" * file.stat().st_size)
    assert deploy._choose(storage, "run", None) == names[1]
    assert f"warning: checkpoint {names[2]} is not served" in capsys.readouterr().out
    assert deploy._choose(storage, "run", names[0]) == names[0]
    for wanted, message in ((names[2], "no valid checkpoint"), ("nope", "'nope': it has check")):
        with pytest.raises(JobError, match=message):
            deploy._choose(storage, "run", wanted)
    (tmp_path / "none").mkdir()
    with pytest.raises(JobError, match="run 'none' has no valid checkpoint"):
        deploy._choose(storage, "none", None)


def test_a_checkpoint_that_cannot_be_loaded_is_not_served(tmp_path, capsys):  # F53
    for number, weight in ((1, torch.zeros(1)), (2, np.float64(1))):
        checkpoint(tmp_path, number, weight, describe(**PLAIN))
    assert deploy._choose(tmp_path.as_uri(), "run", None) == "checkpoint_000001-abcd"
    assert "checkpoint.ckpt does not hold tensors and plain values" in capsys.readouterr().out


def test_a_run_that_describes_too_little_is_refused_before_anything_starts(tmp_path):
    checkpoint(tmp_path, 1, torch.zeros(1), {"job": "my_job"})
    missing = "'run' cannot be served: .* does not have architecture, classes, image_side, mean"
    with pytest.raises(JobError, match=missing):
        deploy._choose(tmp_path.as_uri(), "run", None)
    assert deploy._choose(tmp_path.as_uri(), "run", None, own_code=True).startswith("checkpoint_")
    assert deploy._choose(tmp_path.as_uri(), "none", None, own_code=True) == ""


def test_a_node_that_does_not_know_where_to_listen_says_so(monkeypatch):
    monkeypatch.setenv(deploy.HOST_VARIABLE, "127.0.0.1")
    missing = f"{deploy.PORT_VARIABLE}, {deploy.TOKEN_FILE_VARIABLE}"
    with pytest.raises(SystemExit, match=f"error: this node does not have {missing}, "):
        deploy.main(["run", "--name", "run"])
    monkeypatch.setenv(deploy.PORT_VARIABLE, "8000")
    monkeypatch.setenv(deploy.TOKEN_FILE_VARIABLE, "/run/secrets/serve-token")
    assert deploy._address() == ("127.0.0.1", 8000)
