"""Small models of square images with three channels: an MLP of any size, and a CNN."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

import trainyard
from trainyard.data import digits
from trainyard.errors import JobError
from trainyard.resume import checkpoint_files

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


def description(job: str, config: DictConfig) -> dict[str, Any]:
    """Return what a checkpoint's manifest says of a model, from which `served` builds it."""
    network = OmegaConf.to_container(config.model)
    return {"job": job, "image_side": config.data.side, "network": network}


@dataclass(frozen=True)
class Served:
    """A trained model that answers requests; its images have `side` pixels."""

    network: nn.Module
    side: int

    def answer(self, inputs: Any) -> dict[str, Any]:
        """Answers digits, each 64 pixels from 0 to 16, with their classes.

        Raises:
            JobError: the inputs are something else.
        """
        with torch.inference_mode():
            logits = self.network(digits.enlarged(digits.given(inputs), self.side))
        return digits.predictions(logits.softmax(1))


def served(folder: Path) -> Served:
    """Return the model of a checkpoint's local folder."""
    found = checkpoint_files.model(folder)
    side = found["image_side"]
    network = build(OmegaConf.create(found["network"]), side)
    return Served(trainyard.load(folder, network=network), side)
