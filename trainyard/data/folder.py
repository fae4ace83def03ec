"""A folder of images on the nodes, with a folder for each class.

Images as /data/mine/cat/1.jpg are split: a tenth of each class is to validate and a tenth to test,
as the seed determines. Images as /data/mine/train/cat/1.jpg and /data/mine/val/cat/2.jpg are split
already, and a tenth of train stands in for val or test if it is missing.
"""

import copy
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.utils.data import Dataset, Subset
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import is_image_file

from trainyard import pictures
from trainyard.data.splits import Splits, cut, size
from trainyard.errors import JobError

# Splits by the name of a folder, in small letters.
SPLITS = dict.fromkeys(("val", "valid", "validation"), "valid")
SPLITS |= {"train": "train", "training": "train", "test": "test", "evaluation": "test"}
SHOWN = 5  # names in a message


class Pictures(ImageFolder):  # type: ignore[misc]  # torchvision is not typed
    """Pictures with one subfolder per class. Hidden files are ignored, with one warning."""

    def __init__(self, path: Path, transform: Callable[[Any], Any]) -> None:
        self._hidden: set[str] = set()
        super().__init__(path, transform, loader=pictures.read, is_valid_file=self._is_shown)
        if self._hidden:
            some = ", ".join(sorted(self._hidden)[:SHOWN])
            _say(f"{len(self._hidden)} names hidden in {path}, so ignored: {some}")

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """Return the visible subfolders with their numbers."""
        names = super().find_classes(directory)[0]
        classes = [name for name in names if not self._hides(name)]
        if not classes:
            raise FileNotFoundError("each folder in it is hidden")
        return classes, {name: number for number, name in enumerate(classes)}

    def _is_shown(self, file: str) -> bool:
        return is_image_file(file) and not self._hides(*Path(file).relative_to(self.root).parts)

    def _hides(self, *parts: str) -> bool:
        hidden = [part for part in parts if part.startswith(".")]
        self._hidden.update(hidden[:1])
        return bool(hidden)


def load(
    path: Path,
    seed: int,
    transform: Callable[[Any], Any],
    augmented: Callable[[Any], Any] | None = None,
) -> Splits:
    """Return a folder's images, as the module describes, and says how many there are.

    Args:
        path: the folder's path.
        seed: fixes which images are held out.
        transform: makes a tensor of a PIL image.
        augmented: the same for images to learn from, if it differs.

    Raises:
        JobError: the folder or its images are missing, or its classes cannot be learned.
    """
    parts = {split: _images(folder, transform) for split, folder in _folders(path).items()}
    if parts and "train" not in parts:
        names = ", ".join(sorted(Path(part.root).name for part in parts.values()))
        raise JobError(f"{path} has {names} and no train: name the folder with the rest so")
    whole = parts.pop("train", None) or _images(path, transform)
    for part in parts.values():
        for one, other in ((part, whole), (whole, part)):
            if only := sorted({*one.classes} - {*other.classes})[:SHOWN]:
                raise JobError(
                    f"{one.root} has classes that {other.root} lacks ({', '.join(only)}): "
                    "give both the same folders"
                )
    missing = [split for split in ("valid", "test") if split not in parts]
    kept, *held = _cut(whole, seed, len(missing))
    learned = copy.copy(whole)
    learned.transform = augmented or transform
    own: dict[str, Dataset[Any]] = {**parts}
    own |= {split: Subset(whole, cut) for split, cut in zip(missing, held, strict=True)}
    _say(
        f"{path}: {len(whole.classes)} classes, {len(kept)} images to learn from, "
        f"{size(own['valid'])} to validate, {size(own['test'])} to test"
    )
    return Splits(Subset(learned, kept), own["valid"], own["test"], whole.classes)


def _folders(path: Path) -> dict[str, Path]:
    """Return the folders of splits: each has folders itself, which a class has not."""
    try:
        return {
            SPLITS[each.name.lower()]: each
            for each in path.iterdir()
            if each.name.lower() in SPLITS and any(map(Path.is_dir, each.glob("*")))
        }
    except OSError as error:
        raise JobError(
            f"{path} is not a folder that {socket.gethostname()} can read ({error.strerror}): "
            "put the images at this path on every node, or name their path there"
        ) from error


def _images(path: Path, transform: Callable[[Any], Any]) -> Pictures:
    try:
        images = Pictures(path, transform)
    except (OSError, RuntimeError) as error:
        raise JobError(
            f"no images in {path} ({error}): it needs a folder for each class, with its images"
        ) from error
    if len(images.classes) == 1:
        raise JobError(
            f"{path} has one class only, {images.classes[0]}: there is nothing to tell apart, so "
            "add a folder for each other class"
        )
    return images


def _cut(images: Pictures, seed: int, held_out: int) -> list[list[int]]:
    """Cuts a tenth of each class off for each held-out part.

    Returns indices of the kept images, then of each part; classes are mixed.
    """
    parts: list[list[int]] = [[] for _ in range(held_out + 1)]
    labels = torch.tensor(images.targets)
    for number, name in enumerate(images.classes):
        own = (labels == number).nonzero().flatten()
        if len(own) <= held_out:
            raise JobError(
                f"{Path(images.root) / name} has {len(own)} images, and {held_out} of them would "
                f"be held out: add some, to have at least {held_out + 1}"
            )
        for part, chosen in zip(parts, cut(len(own), seed, held_out), strict=True):
            part.extend(own[chosen].tolist())
    mixed = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(part), generator=mixed).tolist() for part in parts]
    return [[part[i] for i in order] for part, order in zip(parts, orders, strict=True)]


def _say(line: str) -> None:
    """Prints a line of the job, by its first worker only."""
    if not (distributed.is_initialized() and distributed.get_rank()):
        print(line, flush=True)  # noqa: T201
