"""CIFAR-10 through torchvision's own loader and download."""

from __future__ import annotations

import os
from pathlib import Path

from filelock import FileLock
from torch.utils.data import Subset
from torchvision.datasets import CIFAR10

from training.data.splits import DataError, Splits, cut
from training.data.transforms import to_tensor

FOLDER_VARIABLE = "TRAINYARD_DATA_DIR"
DOWNLOAD_DEADLINE_S = 1800


def load(side: int, seed: int) -> Splits:
    """45,000, 5,000 and 10,000 images; fetched when this node does not have them.

    Raises:
        DataError: they are not to be fetched.
    """
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache/trainyard/data")
    transform = to_tensor(side)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The workers of one node share the folder: the first one fetches, the others wait.
        with FileLock(folder / "cifar10.lock", timeout=DOWNLOAD_DEADLINE_S):
            both = CIFAR10(folder, train=True, download=True, transform=transform)
        test = CIFAR10(folder, train=False, transform=transform)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"CIFAR-10 could not be fetched into {folder} ({error}): give this node a way to the "
            f"internet, put the unpacked archive there, or take --data digits or folder:PATH"
        ) from error
    train, valid = (Subset(both, part) for part in cut(len(both), seed, held_out=1))
    return Splits(train, valid, test, both.classes)
