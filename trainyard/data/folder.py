"""Images in a folder on the nodes, with one subfolder per class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import distributed
from torch.utils.data import Dataset, Subset
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import is_image_file

from trainyard import pictures
from trainyard.data.splits import Splits, cut
from trainyard.data.transforms import to_tensor
from trainyard.errors import JobError


class Pictures(ImageFolder):  # type: ignore[misc]  # torchvision is not typed
    """Pictures with one subfolder per class. Hidden files are ignored, with one warning."""

    def __init__(self, path: Path, transform: Callable[[Any], Any]) -> None:
        self._hidden: set[str] = set()
        super().__init__(path, transform, loader=pictures.read, is_valid_file=self._is_shown)
        if self._hidden and not (distributed.is_initialized() and distributed.get_rank()):
            some = ", ".join(sorted(self._hidden)[:5])
            print(f"{len(self._hidden)} names hidden in {path}, so ignored: {some}")  # noqa: T201 - a job's

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


def load(path: Path, side: int, seed: int) -> Splits:
    """Return images of path/train, and of path/valid and path/test where they exist.

    Raises:
        JobError: no images, or other classes in one folder than in another.
    """
    transform = to_tensor(side)
    train = _images(path / "train", transform)
    own: dict[str, Dataset[Any]] = {}
    for name in ("valid", "test"):
        if not (path / name).is_dir():
            continue
        part = _images(path / name, transform)
        if part.classes != train.classes:
            raise JobError(
                f"{path / name} has the classes {part.classes}, {path / 'train'} has "
                f"{train.classes}: make their folders the same"
            )
        own[name] = part
    kept, *held = cut(len(train), seed, held_out=2 - len(own))
    for name in ("valid", "test"):
        if name not in own:
            own[name] = Subset(train, held.pop(0))
    return Splits(Subset(train, kept), own["valid"], own["test"], train.classes)


def _images(path: Path, transform: Callable[[Any], Any]) -> Pictures:
    try:
        return Pictures(path, transform)
    except (OSError, RuntimeError) as error:
        raise JobError(
            f"no images in {path} ({error}): --data folder:PATH needs "
            "PATH/train/<class>/<image>, on every node at the same path"
        ) from error
