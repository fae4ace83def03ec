"""ResNet-18 as torchvision has it (He et al., 2015), without pretrained weights."""

from __future__ import annotations

import torch
from torch import nn


def resnet18(num_classes: int) -> nn.Module:
    """Maps images (batch, 3, height, width), each side at least 28, to logits (batch, classes).

    Its weights lie with the channels last: a quarter faster on CPUs, and no slower on GPUs.
    """
    # It takes two seconds to import, and a job's driver builds no model.
    from torchvision import models  # noqa: PLC0415

    network: nn.Module = models.resnet18(num_classes=num_classes)
    return network.to(memory_format=torch.channels_last)
