"""The three splits of every data set, cut the same way for the same seed."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch.utils.data import Dataset, Subset

from trainyard.errors import JobError

HELD_OUT = 0.1  # of the images, where a data set lacks such a split


@dataclass(frozen=True)
class Splits:
    """Three data sets of (image (3, side, side) in 0..1, class index), and the class names.

    For `resized_side` see trainyard/data/transforms.py.
    """

    train: Dataset[Any]
    valid: Dataset[Any]
    test: Dataset[Any]
    classes: Sequence[str]
    resized_side: int | None = None


def cut(count: int, seed: int, held_out: int) -> list[list[int]]:
    """Shuffles indices and cuts a tenth off for each held-out part.

    Returns indices of the kept items, then of each part.

    Raises:
        JobError: too few images for that.
    """
    each = max(1, round(count * HELD_OUT))
    if count <= each * held_out:
        raise JobError(f"{count} images are too few to hold out {held_out} parts of {each}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    cuts = [*range(0, each * held_out + 1, each), count]
    *held, kept = (order[a:b] for a, b in pairwise(cuts))
    return [kept, *held]


def first(splits: Splits, limit: int) -> Splits:
    """Return at most `limit` images of each split."""
    train, valid, test = (
        Subset(part, range(min(limit, size(part))))
        for part in (splits.train, splits.valid, splits.test)
    )
    return replace(splits, train=train, valid=valid, test=test)


def size(data: Dataset[Any]) -> int:
    """Number of items; torch's Dataset does not promise one.

    Raises:
        TypeError: the data set has no length.
    """
    if not isinstance(data, Sized):
        raise TypeError(f"{data!r} has no length")
    return len(data)
