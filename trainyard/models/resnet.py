"""Torchvision's ResNet-18 (He et al., 2015), without pretrained weights."""

import torch
from torch import nn


def resnet18(num_classes: int) -> nn.Module:
    """Maps images (batch, 3, height, width), each side at least 28, to logits (batch, classes).

    Its weights are stored channels last: a quarter faster on CPUs, and not slower on GPUs.
    """
    # The import takes two seconds, and a job's driver builds no model.
    from torchvision import models  # noqa: PLC0415

    network: nn.Module = models.resnet18(num_classes=num_classes)
    return network.to(memory_format=torch.channels_last)
