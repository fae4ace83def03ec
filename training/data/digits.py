"""Scanned digits: UCI's optical recognition set, as scikit-learn brings it along."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Subset, TensorDataset

from training.data.splits import Splits, cut

SIDE = 8
LEVELS = 16  # of grey


def load(side: int, seed: int) -> Splits:
    """All 1,797 digits, enlarged to side x side and in three equal channels."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.as_tensor(pixels, dtype=torch.float32).view(-1, 1, SIDE, SIDE) / LEVELS
    images = torch.nn.functional.interpolate(images, (side, side), mode="bilinear")
    data = TensorDataset(images.expand(-1, 3, -1, -1), torch.as_tensor(labels))
    train, valid, test = (Subset(data, part) for part in cut(len(data), seed, held_out=2))
    return Splits(train, valid, test, [str(digit) for digit in range(10)])
