"""Labelled images by name, split into train, valid and test as the seed determines.

The names::

    digits   1,797 scanned digits of 8 x 8 pixels that come with scikit-learn: needs no network
    cifar10  60,000 photographs of 32 x 32 pixels, fetched by torchvision once per node
    /path    a folder of images, on every node at this absolute path: trainyard/data/folder.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainyard.data.splits import Splits


def load(name: str, side: int, seed: int, limit: int | None = None) -> Splits:
    """Loads a data set.

    Args:
        name: as above.
        side: images are scaled to this height and width in pixels.
        seed: fixes the splits.
        limit: maximum number of images of each split.

    Raises:
        JobError: the images are not there.
        ValueError: a bad name.
    """
    # Imported one at a time: torchvision takes a second, and digits do not need it; tasks that
    # stream (trainyard/data/streaming.py) do not need PyTorch either.
    from trainyard.data.splits import first  # noqa: PLC0415

    if name == "digits":
        from trainyard.data import digits  # noqa: PLC0415

        splits = digits.load(side, seed)
    elif name == "cifar10":
        from trainyard.data import cifar10  # noqa: PLC0415

        splits = cifar10.load(side, seed)
    elif name.startswith("/"):
        from trainyard.data import folder  # noqa: PLC0415
        from trainyard.data.transforms import to_tensor  # noqa: PLC0415

        splits = folder.load(Path(name), seed, to_tensor(side))
    else:
        raise ValueError(f"{name!r} is not digits, cifar10 or an absolute path on the nodes")
    return splits if limit is None else first(splits, limit)
