"""CIFAR-10 through torchvision's own loader and download."""

from filelock import FileLock
from torch.utils.data import Subset
from torchvision.datasets import CIFAR10

from trainyard.data.node_folder import DOWNLOAD_DEADLINE_S, node_folder
from trainyard.data.splits import Splits, cut
from trainyard.data.transforms import to_tensor
from trainyard.errors import JobError

STRETCH = 70 / 64  # ratio of the resized side to the part that is cut out


def load(side: int, seed: int) -> Splits:
    """45,000, 5,000 and 10,000 images; fetched when this node does not have them.

    A random part of a training image is cut out each time, and the middle of the others.

    Raises:
        JobError: they cannot be downloaded.
    """
    folder = node_folder()
    resized = round(side * STRETCH)
    middle = to_tensor(side, resized)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The workers of one node share the folder: the first one fetches, the others wait.
        with FileLock(folder / "cifar10.lock", timeout=DOWNLOAD_DEADLINE_S):
            test = CIFAR10(folder, train=False, download=True, transform=middle)
        any_part = to_tensor(side, resized, random=True)
        augmented, plain = (
            CIFAR10(folder, train=True, transform=transform) for transform in (any_part, middle)
        )
    except (OSError, RuntimeError) as error:
        raise JobError(
            f"CIFAR-10 could not be fetched into {folder} ({error}): give this node a way to the "
            f"internet, put the unpacked archive there, or take --data digits"
        ) from error
    train, valid = cut(len(plain), seed, held_out=1)
    return Splits(Subset(augmented, train), Subset(plain, valid), test, plain.classes, resized)
