"""Scanned digits: UCI's optical recognition set, from scikit-learn."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset

from trainyard.data.splits import Splits, cut
from trainyard.errors import JobError
from trainyard.serving import likeliest

SIDE = 8
LEVELS = 16  # of grey


def read_pixels() -> tuple[torch.Tensor, torch.Tensor]:
    """Return pixels as float32 (1797, 1, 8, 8) in 0..LEVELS, and digits as int64 (1797,).

    The data of sklearn.datasets.load_digits, whose import alone takes a second in each worker.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the digits come with scikit-learn: pip install scikit-learn")
    table = np.loadtxt(Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    pixels = torch.as_tensor(table[:, :-1], dtype=torch.float32)
    return pixels.view(-1, 1, SIDE, SIDE), torch.as_tensor(table[:, -1], dtype=torch.int64)


def load(side: int, seed: int) -> Splits:
    """Return all 1,797 digits, enlarged to side x side and in three equal channels."""
    pixels, labels = read_pixels()
    data = TensorDataset(enlarged(pixels, side), labels)
    train, valid, test = (Subset(data, part) for part in cut(len(data), seed, held_out=2))
    return Splits(train, valid, test, [str(digit) for digit in range(10)])


def enlarged(pixels: torch.Tensor, side: int) -> torch.Tensor:
    """Return pixels as images (digits, 3, side, side) in 0..1, in equal channels."""
    images = torch.nn.functional.interpolate(pixels / LEVELS, (side, side), mode="bilinear")
    return images.expand(-1, 3, -1, -1)


def given(inputs: Any) -> torch.Tensor:
    """Return a request's digits, as scikit-learn has them, as `read_pixels` does.

    Raises:
        JobError: the inputs are something else.
    """
    try:
        pixels = torch.tensor(inputs, dtype=torch.float32)
        fits = pixels.shape[1:] == (SIDE**2,) and bool(((pixels >= 0) & (pixels <= LEVELS)).all())
    except (TypeError, ValueError, RuntimeError):
        fits = False
    if not fits:
        raise JobError(
            f"the inputs are not digits: send a list of them, each a list of {SIDE**2} numbers "
            f"from 0 to {LEVELS}, as load_digits().data of scikit-learn"
        )
    return pixels.view(-1, 1, SIDE, SIDE)


def predictions(probabilities: Any) -> dict[str, Any]:
    """Return a service's answer for an array (digits, 10)."""
    names = [str(digit) for digit in range(10)]
    return {"predictions": [likeliest(names, row) for row in probabilities.tolist()]}
