"""AlexNet for small images: torchvision's layers, as S. Raschka trained them on CIFAR-10.

https://github.com/rasbt/deeplearning-models (cnn-alexnet-cifar10.ipynb); Krizhevsky et al., 2012.
"""

import torch
from torch import nn

IMAGE_SIZE = 64
"""Side of the images in pixels; at 64 the last pooling leaves one cell, the minimum."""
FEATURES = 256 * 6 * 6


class AlexNet(nn.Module):
    """Five convolutions and three linear layers; about 57 million parameters."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(64, 192, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(192, 384, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(0.5),
            nn.Linear(FEATURES, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Maps images (batch, 3, side, side), side at least 63, to logits (batch, classes)."""
        logits: torch.Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return logits
