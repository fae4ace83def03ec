"""From a picture of any size and mode to a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision.transforms import v2


def to_tensor(side: int) -> Callable[[Any], Any]:
    """A PIL image to float32 (3, side, side) in 0..1."""
    transform: Callable[[Any], Any] = v2.Compose(
        [
            v2.RGB(),
            v2.ToImage(),
            v2.Resize((side, side), antialias=True),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    return transform
