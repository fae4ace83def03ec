"""The stand-in for Food-11 that docker/dataset/generated.py draws."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).resolve().parents[2] / "docker/dataset"
IMAGES = {"training": 44, "validation": 22, "evaluation": 11}


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"dataset_{name}", FOLDER / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look themselves up
    spec.loader.exec_module(found)
    return found


generated = module("generated")


@pytest.fixture(scope="module")
def food(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("food") / "Food-11"
    generated.generate(folder, IMAGES, side=32)
    return folder


def test_splits_classes_and_sizes_are_as_asked(food):
    for split, count in IMAGES.items():
        classes = sorted(path.name for path in (food / split).iterdir())
        assert classes == [f"class_{number:02d}" for number in range(11)]
        images = list((food / split).glob("*/*.jpg"))
        assert len(images) == count
        assert {Image.open(image).size for image in images} == {(32, 32)}


def test_the_manifest_is_the_dataset_steps(food):
    dataset = module("dataset")
    manifest = dataset.Manifest(**json.loads((food / dataset.MANIFEST).read_text()))
    assert (manifest.images, manifest.digest) == dataset._survey(food)
    assert manifest.source.startswith("generated")
    assert manifest.images["training/class_10"] == 4


def test_the_same_arguments_draw_the_same_images(food, tmp_path):
    generated.generate(tmp_path / "again", IMAGES, side=32)
    generated.generate(tmp_path / "other", IMAGES, side=32, seed=2)
    name = "training/class_03/3_1.jpg"
    content = (food / name).read_bytes()
    assert (tmp_path / "again" / name).read_bytes() == content
    assert (tmp_path / "other" / name).read_bytes() != content
    manifests = {path.name: (path / ".manifest.json").read_text() for path in tmp_path.iterdir()}
    assert manifests["again"] == (food / ".manifest.json").read_text() != manifests["other"]


def test_more_images_leave_the_first_ones_as_they_are(food, tmp_path):
    generated.generate(tmp_path, IMAGES | {"training": 55}, side=32)
    for image in food.glob("*/*/*.jpg"):
        assert (tmp_path / image.relative_to(food)).read_bytes() == image.read_bytes()


def test_no_class_is_told_by_its_mean_colour_alone():
    random = np.random.default_rng(1)
    means = np.array(
        [
            [generated._draw(label, 32, random).mean((0, 1)) for _ in range(20)]
            for label in range(11)
        ]
    )
    centres = means[:, :10].mean(1)
    distances = np.linalg.norm(means[:, 10:, None] - centres, axis=-1)
    right = (distances.argmin(-1) == np.arange(11)[:, None]).mean()
    assert right < 0.7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--training", "10"], "error: training 10 is less than one image for each of 11 classes"),
        (["--side", "8"], "error: side 8 is less than 16 pixels"),
    ],
)
def test_too_few_or_too_small_is_one_message(tmp_path, capsys, arguments, message):
    assert generated.main(["--folder", str(tmp_path / "new"), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").touch()
    assert generated.main(["--folder", str(tmp_path)]) == 1
    assert f"error: {tmp_path} is not empty: name another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_command_says_what_it_drew(tmp_path, capsys):
    counts = [f"--{split}={count}" for split, count in IMAGES.items()]
    assert generated.main(["--folder", str(tmp_path), *counts, "--side", "16"]) == 0
    assert "generated 11 classes, not food (training 44" in capsys.readouterr().out
