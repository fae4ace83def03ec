"""Small models of square images with three channels: an MLP of any size, and a CNN."""

from __future__ import annotations

from itertools import pairwise

from omegaconf import DictConfig
from torch import nn

from trainyard.errors import JobError

CHANNELS = 3
DIGITS = 10


def build(config: DictConfig, side: int) -> nn.Module:
    """Return a model.

    Args:
        config: `kind`, and `hidden_dims` of an mlp or `channels` of a cnn.
        side: of the images, in pixels.

    Raises:
        JobError: the kind does not exist.
    """
    if config.kind == "mlp":
        widths = [CHANNELS * side**2, *config.hidden_dims]
        layers = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], DIGITS))
    if config.kind == "cnn":
        channels = [CHANNELS, *config.channels]
        blocks = [
            part
            for pair in pairwise(channels)
            for part in (nn.Conv2d(*pair, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        ]
        left = side // 2 ** len(config.channels)
        return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(channels[-1] * left**2, DIGITS))
    raise JobError(f"model {config.kind!r} is not mlp or cnn: choose one of these")


def count(model: nn.Module) -> int:
    """Return the number of parameters that the model learns."""
    return sum(each.numel() for each in model.parameters() if each.requires_grad)
