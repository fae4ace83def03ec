"""A few images in CIFAR-10's own files, as torchvision reads them."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

# Code for another Python that has these files pass for the real ones, once it called `begin`.
STAND_IN = """
import hashlib

GENUINE = {genuine}
real = hashlib.md5

class Md5:
    def __init__(self, *arguments, **options):
        self._hash = real(*arguments, **options)

    def __getattr__(self, name):
        return getattr(self._hash, name)

    def hexdigest(self):
        found = self._hash.hexdigest()
        return GENUINE.get(found, found)

def begin():
    hashlib.md5 = Md5
"""
SIDE = 32
EACH = 10  # images of each of the six files
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes 50 and 10 images, and has torchvision take their files for the real ones.

    Red rises from left to right and green from top to bottom, blue is the number in its file.
    """
    there = folder / CIFAR10.base_folder
    there.mkdir()
    across, down = np.meshgrid(*[np.arange(SIDE, dtype=np.uint8) * 8] * 2)
    lists = {}
    for name in ("train_list", "test_list"):
        lists[name] = []
        for file, _ in getattr(CIFAR10, name):
            images = [
                np.stack([across, down, np.full_like(across, number)]) for number in range(EACH)
            ]
            content = {"data": np.stack(images).reshape(EACH, -1), "labels": [*range(EACH)]}
            content["batch_label"] = file  # no two files are the same
            lists[name].append([file, _write(there / file, content)])
        monkeypatch.setattr(CIFAR10, name, lists[name])
    meta = CIFAR10.meta | {"md5": _write(there / "batches.meta", {"label_names": CLASSES})}
    monkeypatch.setattr(CIFAR10, "meta", meta)


def write_for_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Writes the images; the code with which other Pythons take their files for the real ones."""
    expected = _sums()
    write(folder, monkeypatch)
    return STAND_IN.format(genuine=dict(zip(_sums(), expected, strict=True)))


def _sums() -> list[str]:
    files = [*CIFAR10.train_list, *CIFAR10.test_list]
    return [*(md5 for _, md5 in files), CIFAR10.meta["md5"]]


def _write(file: Path, content: object) -> str:
    file.write_bytes(pickle.dumps(content))
    return hashlib.md5(file.read_bytes()).hexdigest()
