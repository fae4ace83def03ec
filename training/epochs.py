"""One epoch of training or measuring an image classifier: plain PyTorch, no Ray."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, Subset

from training.data.splits import size


def train_epoch(
    model: nn.Module,
    loader: Iterable[Any],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> torch.Tensor:
    """One pass over the training data.

    Args:
        model: is put into training mode; maps images to logits.
        loader: yields images (batch, channels, height, width) and labels (batch,).
        optimizer: of the model's parameters.
        device: of the model.

    Returns:
        Correct predictions, summed loss, images seen: float64 (3,) on the device.
    """
    model.train()
    totals = torch.zeros(3, dtype=torch.float64, device=device)
    for batch in loader:
        images, labels = (part.to(device) for part in batch)
        logits = model(images)
        loss = cross_entropy(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        _count(totals, logits.detach(), labels, loss.detach())
    return totals


def evaluate(model: nn.Module, loader: Iterable[Any], device: torch.device) -> torch.Tensor:
    """Predicts all images without training; returns totals as `train_epoch` does."""
    model.eval()
    totals = torch.zeros(3, dtype=torch.float64, device=device)
    with torch.no_grad():
        for batch in loader:
            images, labels = (part.to(device) for part in batch)
            logits = model(images)
            _count(totals, logits, labels, cross_entropy(logits, labels))
    return totals


def accuracy_and_loss(totals: torch.Tensor) -> tuple[float, float]:
    """Accuracy in 0..1 and mean loss of an epoch's totals."""
    correct, loss, count = totals.tolist()
    return correct / count, loss / count


def seed_epoch(seed: int, epoch: int, rank: int) -> None:
    """Makes an epoch's random numbers independent of the epochs before it."""
    # Mixed, for seeds side by side would give one epoch's numbers to another seed's next one.
    torch.manual_seed(random.Random(f"{seed} {epoch} {rank}").getrandbits(63))  # noqa: S311


def share(data: Dataset[Any], rank: int, world: int) -> Subset[Any]:
    """Every world-th image: unlike DistributedSampler it repeats none, so that sums are exact."""
    return Subset(data, range(rank, size(data), world))


def _count(
    totals: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, loss: torch.Tensor
) -> None:
    totals[0] += (logits.argmax(1) == labels).sum()
    totals[1] += loss * len(labels)
    totals[2] += len(labels)
