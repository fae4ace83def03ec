"""Data sets: splits that the seed fixes, and messages when images are missing."""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchvision.datasets import CIFAR10

from tests.unit.trainyard import cifar10_files
from trainyard import data
from trainyard.data import digits
from trainyard.data.node_folder import FOLDER_VARIABLE
from trainyard.data.splits import cut, first, size
from trainyard.epochs import seed_epoch
from trainyard.errors import JobError
from trainyard.report import progress
from trainyard.resume import code_faults


@given(st.integers(3, 3000), st.integers(0, 2**31), st.sampled_from([1, 2]))
def test_a_cut_uses_every_index_once(count, seed, held_out):
    parts = cut(count, seed, held_out)
    assert sorted(index for part in parts for index in part) == list(range(count))
    assert {len(part) for part in parts[1:]} == {max(1, round(count * 0.1))}
    assert parts == cut(count, seed, held_out)


def test_the_seed_and_enough_images_make_a_cut():
    assert cut(100, 1, 2) != cut(100, 2, 2)
    with pytest.raises(JobError, match="2 images are too few"):
        cut(2, 1, held_out=2)


@pytest.mark.parametrize("name", ["", "mnist", "folder:/here", "here", "Digits"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="is not digits, cifar10 or an absolute path"):
        data.load(name, 8, 1)


def test_digits_are_those_of_scikit_learn():
    pixels, labels = digits.read_pixels()
    theirs, their_labels = load_digits(return_X_y=True)
    assert pixels.flatten(1).tolist() == theirs.tolist()
    assert labels.tolist() == their_labels.tolist()


def test_digits_are_real_images_in_three_splits():
    splits = data.load("digits", 16, seed=1)
    assert [size(part) for part in (splits.train, splits.valid, splits.test)] == [1437, 180, 180]
    image, label = splits.train[0]
    assert image.shape == (3, 16, 16)
    assert image.min() >= 0
    assert 0.5 < image.max() <= 1
    assert 0 <= int(label) <= 9
    assert len(splits.classes) == 10


def test_a_limit_holds_for_each_split():
    splits = data.load("digits", 8, seed=1, limit=200)
    assert [size(part) for part in (splits.train, splits.valid, splits.test)] == [200, 180, 180]


def draw(folder: Path, split: str, classes: Sequence[str], count: int) -> None:
    for label in classes:
        (folder / split / label).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (20, 10), (i, ord(label[0]), 0)).save(
                folder / split / label / f"{i}.png"
            )


@pytest.mark.parametrize(
    "names",
    [
        ("train", "valid", "test"),
        ("Train", "val", "evaluation"),
        ("training", "validation", "TEST"),
    ],
)
def test_a_folder_with_all_splits(names, tmp_path, capsys):
    for split, count in zip(names, (4, 2, 3), strict=True):
        draw(tmp_path, split, "ab", count)
    splits = data.load(str(tmp_path), 8, seed=1)
    said = f"{tmp_path}: 2 classes, 8 images to learn from, 4 to validate, 6 to test\n"
    assert capsys.readouterr().out == said
    assert [size(part) for part in (splits.train, splits.valid, splits.test)] == [8, 4, 6]
    image, _ = splits.train[0]
    assert image.shape == (3, 8, 8)
    assert image.dtype == torch.float32
    assert splits.classes == ["a", "b"]


def seen(part: Dataset[Any]) -> set[tuple[int, int]]:
    """Return which images a split has: the number of each one, and its class."""
    return {
        (round(image[0, 0, 0].item() * 255), int(label)) for image, label in DataLoader(part, None)
    }


@pytest.mark.parametrize(("train", "own"), [("", ""), ("train", ""), ("train", "val")])
def test_missing_splits_are_cut_off_each_class_as_the_seed_determines(train, own, tmp_path):
    draw(tmp_path, train, "ab", 10)
    (tmp_path / "notes.txt").write_text("no picture")
    if own:
        draw(tmp_path, own, "ab", 2)
    splits = data.load(str(tmp_path), 8, seed=1)
    kept, valid, test = (seen(part) for part in (splits.train, splits.valid, splits.test))
    held = test if own else valid | test
    assert [sorted(label for _, label in part) for part in (valid, test)] == (
        [[0, 0, 1, 1] if own else [0, 1], [0, 1]]
    )
    assert kept | held == {(number, label) for number in range(10) for label in (0, 1)}
    assert len(kept) + len(held) == 20
    assert len({int(label) for _, label in first(splits, 6).train}) == 2  # classes are mixed
    again, other = (data.load(str(tmp_path), 8, seed=seed).test for seed in (1, 2))
    assert seen(again) == test != seen(other)


def test_a_class_may_be_named_like_a_split(tmp_path):
    draw(tmp_path, "", ["car", "plane", "train"], 4)
    assert data.load(str(tmp_path), 8, seed=1).classes == ["car", "plane", "train"]


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ("", r"mine is not a folder that \S+ can read \(No such file.*put the images at this"),
        ("x.txt", r"^no images in .*mine \(.*\): it needs a folder for each class"),
        ("a/x.txt b/0.png", "no images in .*classes a"),
        ("0.png 1.png", "no images in .*mine "),
        ("a/0.png a/1.png", r"mine has one class only, a: .* add a folder"),
        ("a/0.png a/1.png a/2.png b/0.png b/1.png", r"mine/b has 2 images.*at least 3"),
        ("train/a/0.png train/b/0.png val/a/0.png val/c/0.png", r"val has .*train lacks \(c\)"),
        ("train/a/0.png train/b/0.png val/a/0.png val/b/x.txt", "no images in .*val .*classes b"),
        ("val/a/0.png val/b/0.png", "mine has val and no train"),
    ],
)
def test_a_folder_that_cannot_be_learned_from_is_one_message(folders, message, tmp_path):
    mine = tmp_path / "mine"
    for file in map(mine.joinpath, folders.split()):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".png":
            Image.new("RGB", (8, 8)).save(file)
        else:
            file.touch()
    with pytest.raises(JobError, match=message) as caught:
        data.load(str(mine), 8, seed=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("processes", [0, 1])
def test_a_picture_that_cannot_be_read_is_named(processes, tmp_path):
    draw(tmp_path, "", "ab", 3)
    for label in "ab":
        for broken in (tmp_path / label).iterdir():
            broken.write_bytes(b"no picture")
    splits = data.load(str(tmp_path), 8, seed=1)
    with pytest.raises(JobError) as caught:
        list(DataLoader(splits.train, num_workers=processes))
    said = code_faults.message(caught.value)
    assert re.fullmatch(
        rf"{tmp_path}/[ab]/\d\.png is not a readable picture \(.*\): replace.*", said
    )


def test_what_is_hidden_is_no_class_and_no_picture(tmp_path, capsys):  # F77
    draw(tmp_path / ".data", "train", "ab", 10)
    train = tmp_path / ".data" / "train"
    for hidden in (".ipynb_checkpoints", "a/.ipynb_checkpoints"):
        (train / hidden).mkdir()
    shutil.copy(train / "a" / "0.png", train / "a" / "._0.png")  # as macOS does
    shutil.copy(train / "a" / "0.png", train / "a" / ".ipynb_checkpoints" / "0.png")
    splits = data.load(str(tmp_path / ".data"), 8, seed=1)
    assert splits.classes == ["a", "b"]
    assert [size(part) for part in (splits.train, splits.valid, splits.test)] == [16, 2, 2]
    said = f"2 names hidden in {train}, so ignored: ._0.png, .ipynb_checkpoints"
    assert capsys.readouterr().out.splitlines()[0] == said


def test_only_hidden_folders_are_no_images(tmp_path):
    (tmp_path / "train" / ".ipynb_checkpoints").mkdir(parents=True)
    with pytest.raises(JobError, match=r"no images in .*train \(each folder in it is hidden\)"):
        data.load(str(tmp_path), 8, seed=1)


@pytest.fixture
def few_images(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    cifar10_files.write(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.usefixtures("few_images")
def test_cifar10_is_cut_out_of_larger_images():  # A1 A3
    splits = data.load("cifar10", 64, seed=1)
    assert [size(part) for part in (splits.train, splits.valid, splits.test)] == [45, 5, 10]
    assert splits.classes[0] == "airplane"
    assert splits.resized_side == 70
    # Each image's pixels show where it was cut: red across, green down.
    corners: dict[str, set[tuple[int, int]]] = {"train": set(), "valid": set(), "test": set()}
    for name, found in corners.items():
        for _ in range(3):
            for image, label in getattr(splits, name):
                assert image.shape == (3, 64, 64)
                assert image.dtype == torch.float32
                assert int(label) == round(image[2, 0, 0].item() * 255) % 10  # blue is its number
                red, green = image[0, 32, 32].item(), image[1, 32, 32].item()
                found.add((round(red * 255), round(green * 255)))
    assert len(corners["valid"]) == len(corners["test"]) == 1  # the middle
    assert len(corners["train"]) > 10


@pytest.mark.usefixtures("few_images")
@pytest.mark.parametrize("processes", [0, 1])
def test_crops_of_cifar10_depend_on_seed_and_epoch_only(processes):  # F21
    def images(epoch: int) -> torch.Tensor:
        seed_epoch(1, epoch, 0)
        loader = DataLoader(splits.train, 45, num_workers=processes)
        return next(iter(loader))[0]

    splits = data.load("cifar10", 64, seed=1)
    first = images(0)
    assert not torch.equal(first, images(1))
    assert torch.equal(first, images(0))


@pytest.mark.parametrize("left", [b"cut off", None])
def test_cifar10_that_is_damaged_or_missing_without_a_network_is_one_message(
    left, few_images, monkeypatch
):
    if left is None:
        shutil.rmtree(few_images / CIFAR10.base_folder)
    else:
        (few_images / CIFAR10.base_folder / "data_batch_3").write_bytes(left)
    unreachable = Mock(side_effect=OSError("<urlopen error Name or service not known>"))
    monkeypatch.setattr("torchvision.datasets.cifar.download_and_extract_archive", unreachable)
    with pytest.raises(JobError, match=r"could not be fetched .*take --data digits"):
        data.load("cifar10", 64, seed=1)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Unknown(list[int]):
    def __len__(self) -> int:
        raise NotImplementedError


def test_a_loader_of_a_stream_has_no_length():
    loader = DataLoader(Stream(), batch_size=None)
    assert list(progress.report_batches(loader, "epoch 1/2")) == [0, 1, 2]
    assert progress.count(Unknown()) is None
