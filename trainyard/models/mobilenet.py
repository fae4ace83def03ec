"""MobileNetV2 with a new head, as a LightningModule: Sandler et al., 2018.

If pretrained, the head learns first and then, at a small rate, the whole model
(callbacks.Finetuning). Without weights a frozen base would be useless: the whole model learns from
the start, at a larger rate. Its parameters have torchvision's names below `model.`.
"""

from pathlib import Path
from typing import Any

import lightning
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.models import MobileNet_V2_Weights, mobilenet_v2

from trainyard.errors import JobError

PREFIX = "model."  # of the parameters' names in a checkpoint
BASE = "features."  # of the base's parameters, torchvision's name
IMAGENET, NONE = "imagenet", "none"


class Classifier(lightning.LightningModule):
    """Maps images (batch, 3, side, side), side at least 32, to logits (batch, classes)."""

    def __init__(
        self,
        classes: int,
        *,
        weights: str,
        dropout: float,
        lr: float,
        scratch_lr: float,
        seed: int,
    ) -> None:
        """Makes the model.

        Args:
            classes: number of classes.
            weights: imagenet, none, or a file with the state dict of torchvision's MobileNetV2.
            dropout: probability, before the head.
            lr: learning rate of the head on a pretrained base.
            scratch_lr: of the whole model, without weights.
            seed: of the parts that are not pretrained.

        Raises:
            JobError: the weights are not available.
        """
        super().__init__()
        torch.manual_seed(seed)
        self.model = mobilenet_v2(num_classes=classes, dropout=dropout)
        self.pretrained = weights != NONE
        self.rate = lr if self.pretrained else scratch_lr
        if self.pretrained:
            self._load_base(weights)

    @property
    def description(self) -> dict[str, Any]:
        """The entry of a checkpoint's manifest about the model."""
        return {"architecture": "mobilenet_v2", "prefix": PREFIX}

    @property
    def backbone(self) -> nn.Module:
        """The part that is frozen while the head of a pretrained model learns."""
        base: nn.Module = self.model.features
        return base

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.model(images)
        return logits

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch."""
        return self._step("train", batch)

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        """Measures a batch."""
        self._step("val", batch)

    def test_step(self, batch: list[torch.Tensor]) -> None:
        """Measures a batch."""
        self._step("test", batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam for the parameters that learn first."""
        first: nn.Module = self.model.classifier if self.pretrained else self.model
        return torch.optim.Adam(first.parameters(), lr=self.rate)

    def _step(self, name: str, batch: list[torch.Tensor]) -> torch.Tensor:
        images, labels = batch
        logits = self(images)
        loss = cross_entropy(logits, labels)
        accuracy = (logits.argmax(1) == labels).float().mean()
        measured = {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        self.log_dict(
            measured, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(labels)
        )
        return loss

    def _load_base(self, weights: str) -> None:
        state = _download() if weights == IMAGENET else _read(Path(weights))
        base = {k.removeprefix(BASE): v for k, v in state.items() if k.startswith(BASE)}
        try:
            self.model.features.load_state_dict(base)
        except RuntimeError as error:
            raise JobError(
                f"{weights} is not a state dict of torchvision's MobileNetV2 "
                f"({str(error).splitlines()[-1].strip()}): name another file, or --weights none"
            ) from error


def _download() -> dict[str, Any]:
    weights = MobileNet_V2_Weights.DEFAULT
    try:
        return dict(weights.get_state_dict(progress=False, check_hash=True, weights_only=True))
    except (OSError, RuntimeError) as error:
        raise JobError(
            f"the ImageNet weights of MobileNetV2 could not be downloaded from {weights.url} "
            f"({error}): give this node a way to the internet, or bring them as a file that every "
            "node has at the same path (--weights FILE), or start without (--weights none)"
        ) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        return dict(torch.load(file, map_location="cpu", weights_only=True))
    except Exception as error:  # torch has no specific error for unreadable files
        raise JobError(
            f"weights {file} cannot be read ({str(error).splitlines()[0]}): name a file that every "
            "node has at that path, imagenet or none"
        ) from error
