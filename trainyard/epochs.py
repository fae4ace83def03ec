"""Epochs of a classifier of images or of next characters: plain PyTorch, no Ray."""

import random
from collections.abc import Iterable
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, Subset

from trainyard.data.splits import size


class Totals:
    """Sums over the items of an epoch; `of_all_workers` adds up those of all workers.

    Attributes:
        sums: the sum of each figure (default: accuracy and loss), then the items; float64.
    """

    def __init__(self, device: torch.device, figures: int = 2) -> None:
        self.sums = torch.zeros(figures + 1, dtype=torch.float64, device=device)

    def add(self, logits: torch.Tensor, labels: torch.Tensor, loss: torch.Tensor) -> None:
        """Adds a batch: logits (batch, classes, ...), labels (batch, ...), and its mean loss."""
        self.sums[0] += (logits.detach().argmax(1) == labels).sum()
        self.sums[1] += loss.detach() * labels.numel()
        self.sums[2] += labels.numel()

    def add_means(self, items: int, *figures: torch.Tensor | float) -> None:
        """Adds a batch: how many items it has, and the mean of each figure."""
        for index, figure in enumerate((*figures, 1)):
            self.sums[index] += items * torch.as_tensor(figure).detach()

    def of_all_workers(self) -> list[float]:
        """Return the means over all workers' items. Each worker calls it, once."""
        distributed.all_reduce(self.sums)
        return self.means()

    def means(self) -> list[float]:
        """Return the means over this process's items."""
        *sums, items = self.sums.tolist()
        return [each / items for each in sums]


def evaluate(model: nn.Module, loader: Iterable[Any], device: torch.device) -> Totals:
    """Predicts all labels without training; puts the model into evaluation mode.

    The loader yields inputs, such as images (batch, channels, height, width), and labels. The model
    maps inputs to logits.
    """
    model.eval()
    totals = Totals(device)
    with torch.no_grad():
        for batch in loader:
            inputs, labels = (part.to(device) for part in batch)
            logits = model(inputs)
            totals.add(logits, labels, cross_entropy(logits, labels))
    return totals


def seed_epoch(seed: int, epoch: int, rank: int) -> int:
    """Makes an epoch's random numbers independent of the epochs before it; returns their seed."""
    # Mixed: otherwise one epoch's numbers would be those of the next seed's previous epoch.
    mixed = random.Random(f"{seed} {epoch} {rank}").getrandbits(63)  # noqa: S311
    torch.manual_seed(mixed)
    return mixed


def share(data: Dataset[Any], rank: int, world: int) -> Subset[Any]:
    """Return every world-th item; unlike DistributedSampler it repeats none: sums are exact."""
    return Subset(data, range(rank, size(data), world))
