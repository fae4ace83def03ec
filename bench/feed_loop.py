"""The loops that P11 times: JPEGs of 224 pixels to batches of 64 decoded images.

--ray           they stream from shards in the object store, through Ray Data
--load PATH     they are files of this machine, and torch's DataLoader reads them
--decode PATH   the same files, decoded by processes that return nothing
--ram PATH      decoded before the clock runs, and copied batch by batch

PROCESSES decode, except for the last. A pass takes each image READS times: in the first second of a
pass Ray Data runs only one task, because it does not know the cluster's resources yet. Prints
images per second of each pass as JSON; the first is not counted. Run as a file: it imports nothing
of bench.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trainyard.data import streaming, synthetic_images

SIDE = streaming.SIDE
SHARD_IMAGES = 128  # of 4.4 MB together
READS = 4
IN_RAM = 2000  # images at most; all of them would be 0.9 GB
BATCH_SIZE = 64
PROCESSES = 2
PASSES = 2


class Files:
    """A map-style data set of image files, each READS times."""

    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.iterdir()) * READS

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the decoded image, uint8 (SIDE, SIDE, 3), and a label."""
        image = streaming.decode(self._paths[index].read_bytes())
        return {"image": image, "label": index % synthetic_images.CLASSES}


def rates(images: int, begin: Callable[[], Iterable[Any]]) -> list[float]:
    """Return images per second of each pass.

    Args:
        images: of a pass.
        begin: starts a pass; its batches are taken and dropped.

    Raises:
        RuntimeError: a pass lacked images; fewer are faster.
    """
    figures = []
    for _ in range(PASSES):
        begun = time.perf_counter()
        seen = sum(len(batch["label"]) for batch in begin())
        figures.append(images / (time.perf_counter() - begun))
        if seen != images:
            raise RuntimeError(f"a pass had {seen} of {images} images")
    return figures[1:]


def stream(storage: str, count: int) -> dict[str, Any]:
    """Measure Ray Data, twice, with an actor that has a CPU of its own, as training has.

    Args:
        storage: where the shards are, or will be.
        count: how many images.

    Returns:
        figures: as `rates`; largest_mb, object_store_mb: peak memory of one process, the reader
        or a task, and of the object store, the first time and the second.
    """
    import ray

    from trainyard import ray_train
    from trainyard.memory import PeakMemory

    class Reader:
        def __init__(self, url: str, shards: list[str]) -> None:
            self._data = streaming.stream(url, shards * READS)
            self._data.context.execution_options = streaming.limits(PROCESSES)

        def rates(self) -> list[float]:
            batches = partial(self._data.iter_torch_batches, batch_size=BATCH_SIZE)
            return rates(count * READS, batches)

    ray_train.connect()
    recipe = synthetic_images.Recipe(images=count, side=SIDE, per_shard=SHARD_IMAGES)
    images = synthetic_images.ensure(storage, recipe)
    reader: Any = ray.remote(num_cpus=1)(Reader).remote(images.url, images.shards)
    figures, peaks = [], []
    for _ in range(2):
        with PeakMemory(["Reader", streaming.TASK]) as peak:
            figures += ray.get(reader.rates.remote())
        peaks.append(peak)
    return {
        "figures": figures,
        "largest_mb": [peak.largest_mb for peak in peaks],
        "object_store_mb": [peak.object_store_mb for peak in peaks],
    }


def load(folder: Path) -> list[float]:
    """Measure torch's DataLoader, whose processes are kept from pass to pass."""
    from torch.utils.data import DataLoader

    files = Files(folder)
    loader: DataLoader[Any] = DataLoader(
        files,  # type: ignore[arg-type]  # of the same shape
        batch_size=BATCH_SIZE,
        num_workers=PROCESSES,
        persistent_workers=True,
    )
    return rates(len(files), lambda: loader)


def decode(folder: Path) -> list[float]:
    """Measure processes that decode the images, and drop them."""
    files = Files(folder)
    parts = [range(first, len(files), PROCESSES) for first in range(PROCESSES)]
    with multiprocessing.Pool(PROCESSES) as pool:
        return rates(
            len(files),
            lambda: [{"label": range(n)} for n in pool.map(partial(_decode, files), parts)],
        )


def ram(folder: Path) -> list[float]:
    """Measure copies of images that are decoded already."""
    import torch

    files = Files(folder)
    count = min(IN_RAM, len(files))
    images = torch.from_numpy(np.stack([files[index]["image"] for index in range(count)]))
    return rates(
        count,
        lambda: (
            {"image": part.clone(), "label": range(len(part))}
            for part in torch.split(images, BATCH_SIZE)
        ),
    )


def _decode(files: Files, indices: Iterable[int]) -> int:
    return sum(len(files[index]["image"]) == SIDE for index in indices)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ray", action="store_true")
    for way in (load, decode, ram):
        parser.add_argument(f"--{way.__name__}", type=Path)
    parser.add_argument("--images", type=int, required=True)
    args = parser.parse_args()
    if args.ray:
        found = stream(os.environ["TRAINYARD_STORAGE_URL"], args.images)
    else:
        ways = ((way, getattr(args, way.__name__)) for way in (load, decode, ram))
        found = {"figures": next(way(folder) for way, folder in ways if folder)}
    print(json.dumps(found), flush=True)
