"""Images that stream from shards in the object store into training, through Ray Data.

Tasks on any node with a free CPU read and decode shards; training takes the batches as they come.
However large the data, at most STREAM_BYTES of it are in flight.
"""

import functools
import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import ray.data
import torch
from PIL import Image
from pyarrow import parquet
from ray.data import DataIterator, Dataset, ExecutionOptions, ExecutionResources

from trainyard import pictures
from trainyard.store.objects import MOST_STATE_BYTES, open_url

SIDE = 224  # pixels, as ResNet was made for
RESIZED_SIDE = 256  # of the shorter side, before the middle is cut out
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # ImageNet's
BATCH = 128  # images that are handed on at once
SHARDS_PER_TASK = 16  # a task has some 0.1 s of overhead; a lost one runs again
LEAST_TASKS = 8  # given as many shards: a few must not all be read by one CPU

TASK = "MapBatches(decode_shards)"  # as Ray names the tasks

BLOCK_BYTES = 16 * 1024**2  # fewer than BATCH images: passed on without combining them
# Of the object store. Ray Data reserves two blocks for each task, and starts none without that room
# next to the data that training has not taken: with a third of this two tasks never ran at once.
STREAM_BYTES = 192 * 1024**2

# A client of the store costs as much as decoding some twenty images.
_folder = functools.cache(open_url)


def stream(url: str, shards: list[str]) -> Dataset:
    """Streams images as uint8 (rows, SIDE, SIDE, 3), with label int64 (rows,), of Parquet shards.

    The shards in the folder at the URL are files of some MB with the columns `image`, a JPEG or
    PNG, and `label`.
    """
    context = ray.data.DataContext.get_current()
    context.target_max_block_size = BLOCK_BYTES
    context.enable_progress_bars = False
    # Ray Data's own reader of Parquet lists, reads and decodes in three stages that pass JPEGs on
    # through the object store, and wait for each other's CPUs.
    tasks = max(math.ceil(len(shards) / SHARDS_PER_TASK), min(len(shards), LEAST_TASKS))
    return ray.data.from_items(
        [{"url": url, "shard": shard} for shard in shards], override_num_blocks=tasks
    ).map_batches(decode_shards, batch_size=None)


def batches(
    shard: DataIterator, batch_size: int, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields an epoch of normalised images (batch, 3, SIDE, SIDE) and labels (batch,)."""
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) * 255 for values in (MEAN, STD))
    for batch in shard.iter_torch_batches(batch_size=batch_size):
        # Bytes until here: floats are four times as large to pass on.
        images = batch["image"].to(device).permute(0, 3, 1, 2).float()
        yield images.sub_(mean).div_(std), batch["label"].to(device)


def limits(cpus: float) -> ExecutionOptions:
    """Return a stream's limits: CPUs on top of training's, and STREAM_BYTES."""
    return ExecutionOptions(
        resource_limits=ExecutionResources.for_limits(cpu=cpus, object_store_memory=STREAM_BYTES)
    )


def decode_shards(rows: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Reads the files `shard` in the folders `url`; yields up to BATCH images at once."""
    for url, shard in zip(rows["url"], rows["shard"], strict=True):
        file = parquet.ParquetFile(pa.BufferReader(_folder(url).read(shard, MOST_STATE_BYTES)))
        for batch in file.iter_batches(BATCH):
            with pictures.readable(f"a picture in {url}/{shard}"):
                images = [decode(image.as_buffer()) for image in batch["image"]]
            yield {"image": np.stack(images), "label": batch["label"].to_numpy()}


def decode(image: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the middle of a JPEG or PNG of any size as uint8 (SIDE, SIDE, 3)."""
    picture: Image.Image = Image.open(io.BytesIO(image))
    # A JPEG is decoded at a half, a quarter or an eighth of its size, if that is still enough.
    picture.draft("RGB", (RESIZED_SIDE, RESIZED_SIDE))
    picture = pictures.rgb(picture)
    if min(picture.size) != SIDE:
        scale = RESIZED_SIDE / min(picture.size)
        width, height = (round(side * scale) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = ((side - SIDE) // 2 for side in picture.size)
    return np.asarray(picture.crop((left, top, left + SIDE, top + SIDE)))
