"""FashionMNIST by torchvision, and digits to replace it where it cannot be downloaded."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from filelock import FileLock
from torch.utils.data import TensorDataset

from trainyard.data import digits
from trainyard.data.node_folder import CONNECT_S, DOWNLOAD_DEADLINE_S, node_folder
from trainyard.data.splits import Splits
from trainyard.errors import JobError

SIDE = 28
MEAN = STD = [0.5, 0.5, 0.5]  # brings 0..1 to -1..1
DIGITS_KEPT = 1500  # of 1,797; the rest, by other writers, is held out
STAND_IN = "scikit-learn's digits stand in for FashionMNIST"


def load() -> Splits:
    """60,000 and 10,000 images; fetched when this node does not have them.

    The second part is both `valid` and `test`: no choice depends on it.

    Raises:
        JobError: they cannot be downloaded.
    """
    # The import takes two seconds, and a job's driver loads no images.
    from torchvision.datasets import FashionMNIST  # noqa: PLC0415

    folder = node_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The workers of one node share the folder: the first one fetches, the others wait.
        with FileLock(folder / "fashion-mnist.lock", timeout=DOWNLOAD_DEADLINE_S), _impatient():
            train, test = (FashionMNIST(folder, train=t, download=True) for t in (True, False))
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())  # it is several lines
        raise JobError(
            f"FashionMNIST could not be fetched into {folder} ({reason}): give this node a way to "
            "the internet, put its files into FashionMNIST/raw there, or take --data digits"
        ) from error
    held_out = _tensors(test.data, test.targets)
    return Splits(_tensors(train.data, train.targets), held_out, held_out, train.classes)


def stand_in() -> Splits:
    """1,500 and 297 scanned digits, enlarged to FashionMNIST's 28 x 28 pixels."""
    pixels, labels = digits.read_pixels()
    small = pixels * 255 / digits.LEVELS
    images = torch.nn.functional.interpolate(small, (SIDE, SIDE), mode="bilinear").squeeze(1)
    held_out = _tensors(images[DIGITS_KEPT:], labels[DIGITS_KEPT:])
    train = _tensors(images[:DIGITS_KEPT], labels[:DIGITS_KEPT])
    return Splits(train, held_out, held_out, [str(digit) for digit in range(10)])


def _tensors(images: torch.Tensor, labels: torch.Tensor) -> TensorDataset:
    """Grey images (count, 28, 28) in 0..255 as float32 (count, 3, 28, 28) in -1..1, not copied."""
    scaled = (images.to(torch.float32) / 255 - MEAN[0]) / STD[0]
    return TensorDataset(scaled.unsqueeze(1).expand(-1, 3, -1, -1), labels)


@contextmanager
def _impatient() -> Iterator[None]:
    """Gives up on a silent server: torchvision itself would wait forever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(CONNECT_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
