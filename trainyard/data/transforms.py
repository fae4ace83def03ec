"""Turns a picture of any size and mode into a tensor."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torchvision.transforms import v2


def to_tensor(
    side: int, resized_side: int | None = None, *, random: bool = False
) -> Callable[[Any], Any]:
    """Return a transform of PIL images to float32 (3, side, side) in 0..1.

    The image is stretched to `side` pixels; or to `resized_side`, and its middle is cut out, or a
    random part by PyTorch's random numbers.
    """
    stretched = resized_side or side
    cut = v2.RandomCrop(side) if random else v2.CenterCrop(side)
    transform: Callable[[Any], Any] = v2.Compose(
        [
            v2.RGB(),
            v2.ToImage(),
            v2.Resize((stretched, stretched), antialias=True),
            cut,
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    return transform


def crop_to_middle(
    side: int, augmented: Sequence[Callable[[Any], Any]] = ()
) -> Callable[[Any], Any]:
    """Return a transform of PIL images to the middle of each, float32 (3, side, side) in 0..1.

    The shorter side is scaled to `side` pixels. The cut image is augmented.
    """
    cut = [v2.RGB(), v2.Resize(side), v2.CenterCrop(side)]
    whole = [*cut, *augmented, v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    transform: Callable[[Any], Any] = v2.Compose(whole)
    return transform
