"""Models that the jobs train, and how a checkpoint becomes one again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.models import char_gpt
from training.models.alexnet import AlexNet

# Where jobs keep the weights in their file: Lightning's key, and that of jobs without it.
STATES = ("state_dict", "model")


def build(architecture: str, classes: int) -> nn.Module:
    """A network with untrained weights, of images (batch, 3, side, side) or of characters' ids.

    Args:
        architecture: alexnet, mobilenet_v2, resnet18, char_gpt_small or char_gpt_full.
        classes: number of logits.

    Raises:
        ValueError: an architecture that is none of these.
    """
    # torchvision takes a second to import, and AlexNet does without.
    if architecture == "alexnet":
        return AlexNet(classes)
    if architecture == "mobilenet_v2":
        from torchvision.models import mobilenet_v2  # noqa: PLC0415

        network: nn.Module = mobilenet_v2(num_classes=classes)
        return network
    if architecture == "resnet18":
        from training.models.resnet import resnet18  # noqa: PLC0415

        return resnet18(classes)
    sizes = {char_gpt.ARCHITECTURE + name: size for name, size in char_gpt.SIZES.items()}
    if architecture in sizes:
        return char_gpt.CharGpt(sizes[architecture], classes)
    raise ValueError(
        f"architecture {architecture!r} is none of alexnet, mobilenet_v2, resnet18, "
        f"{', '.join(sizes)}: the checkpoint is of a newer version than this code"
    )


def read(folder: Path, model: dict[str, Any]) -> dict[str, Any]:
    """What a job saved with the weights: tensors and plain values only.

    Args:
        folder: the checkpoint's files, verified.
        model: what the checkpoint's manifest says of it (training/checkpoints.py).
    """
    # Whoever can write the bucket must not run code here. Mapped, for the optimizer's state, twice
    # the weights, lies in the same file and is not read so.
    saved: dict[str, Any] = torch.load(
        folder / model["file"], map_location="cpu", weights_only=True, mmap=True
    )
    return saved


def load(saved: dict[str, Any], model: dict[str, Any]) -> nn.Module:
    """The network with the weights of what was saved, on the CPU and set to evaluate.

    Raises:
        ValueError: an unknown architecture, or no weights there.
        RuntimeError: the weights are not that architecture's.
    """
    state = next((saved[name] for name in STATES if name in saved), None)
    if state is None:
        raise ValueError(f"{model['file']} has none of {', '.join(STATES)}, where weights are")
    prefix = model["prefix"]
    weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    network = build(model["architecture"], len(model["classes"]))
    network.load_state_dict(weights)
    return network.eval()


def epochs(saved: dict[str, Any]) -> int | None:
    """How many epochs the saved model has learned, as far as its job says so."""
    if "history" in saved:
        return len(saved["history"])
    return saved["epoch"] + 1 if "epoch" in saved else None
