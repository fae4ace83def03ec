"""Food-11: photographs of food in 11 classes; or other images, for the same jobs.

FOOD11_DATA_DIR/{training,validation,evaluation}/class_00 ... class_10 hold the images: the real
ones at any size, or those that docker/dataset/generated.py draws.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision.transforms import v2

from trainyard.data import folder
from trainyard.data.transforms import crop_to_middle
from trainyard.epochs import seed_epoch
from trainyard.errors import JobError

FOLDER_VARIABLE = "FOOD11_DATA_DIR"
CLASSES = (
    *("Bread", "Dairy product", "Dessert", "Egg", "Fried food", "Meat"),
    *("Noodles/Pasta", "Rice", "Seafood", "Soup", "Vegetable/Fruit"),
)
# ImageNet's, like the weights of the base.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
MANIFEST = ".manifest.json"  # by the dataset step, docker/dataset


class EpochSampler(DistributedSampler[Any]):
    """Order and random numbers of an epoch, from seed and epoch alone.

    Lightning tells it each epoch, so a resumed run sees the same data as an uninterrupted one.
    """

    def __init__(self, data: Dataset[Any], seed: int, rank: int, world: int) -> None:
        super().__init__(data, world, rank, seed=seed)
        self.generator = torch.Generator()  # the loader's; seeds its processes

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch."""
        super().set_epoch(epoch)
        # PyTorch's own are for dropout, and for transforms if no process loads.
        self.generator.manual_seed(seed_epoch(self.seed, epoch, self.rank))


@dataclass(frozen=True)
class Food11:
    """Loaders of batches: images (batch, 3, side, side), normalised, and classes (batch,)."""

    sampler: EpochSampler  # of the training images
    train: DataLoader[Any]
    valid: DataLoader[Any]
    test: DataLoader[Any]
    generated: bool
    side: int  # height and width of the images in pixels
    classes: Sequence[str]  # their names

    @property
    def description(self) -> dict[str, Any]:
        """The entry of a checkpoint's manifest about the images that the model takes."""
        images = {"classes": list(self.classes), "image_side": self.side, "crop": True}
        return images | {"mean": list(MEAN), "std": list(STD)}


def load(
    *,
    side: int,
    batch_size: int,
    seed: int,
    processes: int = 0,
    images: str | None = None,
) -> Food11:
    """Opens the three splits of FOOD11_DATA_DIR, or of another folder.

    Each worker of a process group gets its share of the training images; Lightning shares out the
    others.

    Args:
        side: height and width of the images in pixels.
        batch_size: images of one worker per step.
        seed: of order and augmentation.
        processes: that decode images during training.
        images: the other folder (trainyard/data/folder.py), whose folders name the classes.

    Raises:
        JobError: the images are not there.
    """
    path = images or os.environ.get(FOLDER_VARIABLE)
    if not path:
        draw = "docker/dataset/generated.py draws a stand-in"
        raise JobError(f"no Food-11: set {FOLDER_VARIABLE}, or --images to your own; {draw}")
    augmented = [
        v2.RandomHorizontalFlip(),
        v2.RandomRotation(15),
        v2.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.1),
    ]
    splits = folder.load(Path(path), seed, _transform(side, []), _transform(side, augmented))
    if not images and len(splits.classes) != len(CLASSES):
        raise JobError(
            f"{path} has {len(splits.classes)} classes and Food-11 has {len(CLASSES)}: fill the "
            "folder again, or train on it by --images"
        )
    alone = not distributed.is_initialized()
    rank, world = (0, 1) if alone else (distributed.get_rank(), distributed.get_world_size())
    sampler = EpochSampler(splits.train, seed, rank, world)
    sampler.set_epoch(0)
    train: DataLoader[Any] = DataLoader(
        splits.train,
        batch_size,
        sampler=sampler,
        num_workers=processes,
        generator=sampler.generator,
    )
    valid, test = (
        DataLoader[Any](part, batch_size, num_workers=processes)
        for part in (splits.valid, splits.test)
    )
    names = splits.classes if images else CLASSES
    return Food11(sampler, train, valid, test, is_generated(Path(path)), side, names)


def is_generated(path: Path) -> bool:
    """Whether the images were drawn: measurements on them say nothing about food."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        return str(manifest["source"]).startswith("generated")
    except (OSError, ValueError, KeyError, TypeError):
        return False  # brought by the user, without a manifest


def _transform(side: int, augmented: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    whole: Callable[[Any], Any] = v2.Compose(
        [crop_to_middle(side, augmented), v2.Normalize(MEAN, STD)]
    )
    return whole
