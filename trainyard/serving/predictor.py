"""Predictions of a checkpoint: images in, class probabilities out. No Ray, no HTTP."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import v2

from trainyard import models, serving
from trainyard.data.transforms import crop_to_middle, to_tensor
from trainyard.resume import checkpoint_files


class Predictor:
    """One model with the transforms of its training."""

    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        """Loads the weights of a verified checkpoint; `model` is in its manifest.

        Raises:
            CheckpointError: the file holds more than tensors and plain values.
            ValueError: an unknown architecture, or a manifest that does not describe the model.
            RuntimeError: the weights do not fit the architecture.
        """
        if why := serving.lacking(model):
            raise ValueError(why)
        self.classes: list[str] = model["classes"]
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        saved = checkpoint_files.load(folder / model["file"], mapped=True)
        self.epochs = models.epochs(saved)
        self._network = models.load(saved, model).to(self._device)
        self._transform = _transform(model)

    def prepare(self, image: Image.Image) -> torch.Tensor:
        """Return a picture as the network's input: float32 (channels, side, side)."""
        tensor: torch.Tensor = self._transform(image)
        return tensor

    def probabilities(self, images: torch.Tensor) -> torch.Tensor:
        """Return probabilities (batch, classes) of images (batch, channels, side, side), on CPU."""
        with torch.inference_mode():
            logits: torch.Tensor = self._network(images.to(self._device))
            return logits.softmax(1).cpu()


def _transform(model: dict[str, Any]) -> Callable[[Image.Image], torch.Tensor]:
    side = model["image_side"]
    scaled = (
        crop_to_middle(side) if model.get("crop") else to_tensor(side, model.get("resized_side"))
    )
    normal = [v2.Normalize(model["mean"], model["std"])] if model["mean"] else []
    transform: Callable[[Image.Image], torch.Tensor] = v2.Compose([scaled, *normal])
    return transform
