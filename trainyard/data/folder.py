"""Images in a folder on the nodes, with one subfolder per class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, Subset
from torchvision.datasets import ImageFolder

from trainyard.data.splits import DataError, Splits, cut
from trainyard.data.transforms import to_tensor


def load(path: Path, side: int, seed: int) -> Splits:
    """Return images of path/train, and of path/valid and path/test where they exist.

    Raises:
        DataError: no images, or other classes in one folder than in another.
    """
    transform = to_tensor(side)
    train = _images(path / "train", transform)
    own: dict[str, Dataset[Any]] = {}
    for name in ("valid", "test"):
        if not (path / name).is_dir():
            continue
        part = _images(path / name, transform)
        if part.classes != train.classes:
            raise DataError(
                f"{path / name} has the classes {part.classes}, {path / 'train'} has "
                f"{train.classes}: make their folders the same"
            )
        own[name] = part
    kept, *held = cut(len(train), seed, held_out=2 - len(own))
    for name in ("valid", "test"):
        if name not in own:
            own[name] = Subset(train, held.pop(0))
    return Splits(Subset(train, kept), own["valid"], own["test"], train.classes)


def _images(path: Path, transform: Callable[[Any], Any]) -> ImageFolder:
    try:
        return ImageFolder(path, transform=transform)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"no images in {path} ({error}): --data folder:PATH needs "
            "PATH/train/<class>/<image>, on every node at the same path"
        ) from error
