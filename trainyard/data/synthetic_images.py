"""A data set of any size in the object store, like large photographs: made once, by tasks.

<storage>/.trainyard/synthetic-images/<images>-of-<side>px/
    shard-00000.parquet   some images: `image`, a JPEG, and `label`
    manifest.json         written last: a description, so that the next job reuses the images

The images are noise, tinted by their class. They are in shards because thousands of objects of half
a megabyte would cost more in requests than in bytes.
"""

from __future__ import annotations

import io
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from PIL import Image
from pyarrow import parquet

from trainyard.store.objects import open_url

CLASSES = 10
FOLDER = ".trainyard/synthetic-images"
MANIFEST = "manifest.json"
QUALITY = 90
GRAIN = 128  # levels of noise, of 256


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The images to make, the same bytes each time; one of 1024 pixels has about 0.6 MB."""

    images: int
    side: int = 1024
    per_shard: int = 16

    @classmethod
    def of_size(cls, gigabytes: float) -> Recipe:
        """Return a recipe whose JPEGs have this size, in GiB."""
        return cls(images=max(1, math.ceil(gigabytes * 1024**3 / len(encode(0, cls.side)))))


@dataclass(frozen=True)
class Images:
    """Stored images: the folder's URL, its shards, the number of images and their JPEGs' bytes."""

    url: str
    shards: list[str]
    images: int
    bytes: int


def ensure(storage: str, recipe: Recipe) -> Images:
    """Makes the images below the storage's URL unless they exist, in Ray tasks of one CPU each.

    Raises:
        StorageError: the store cannot be read or written.
    """
    url = f"{storage.rstrip('/')}/{FOLDER}/{recipe.images}-of-{recipe.side}px"
    starts = range(0, recipe.images, recipe.per_shard)
    shards = [f"shard-{number:05d}.parquet" for number in range(len(starts))]
    manifest = _manifest(url, recipe)
    if manifest is None:
        make = ray.remote(num_cpus=1)(write_shard)
        pairs = zip(shards, starts, strict=True)
        try:
            sizes = ray.get([make.remote(url, *pair, recipe) for pair in pairs])
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        manifest = {
            "recipe": asdict(recipe),
            "bytes": sum(jpegs for jpegs, _ in sizes),
            "shards": {shard: size for shard, (_, size) in zip(shards, sizes, strict=True)},
        }
        open_url(url).write(MANIFEST, json.dumps(manifest).encode())
    return Images(url, shards, recipe.images, manifest["bytes"])


def write_shard(url: str, shard: str, start: int, recipe: Recipe) -> tuple[int, int]:
    """Writes the images from `start` on; returns the bytes of their JPEGs and of the file."""
    indices = range(start, min(start + recipe.per_shard, recipe.images))
    jpegs = [encode(index, recipe.side) for index in indices]
    labels = [index % CLASSES for index in indices]
    table = pa.table({"image": pa.array(jpegs, pa.binary()), "label": pa.array(labels, pa.int64())})
    file = io.BytesIO()
    # No compression or statistics: JPEGs would not gain from them.
    parquet.write_table(
        table, file, compression="none", use_dictionary=False, write_statistics=False
    )
    open_url(url).write(shard, file.getvalue())
    return sum(map(len, jpegs)), file.tell()


def encode(index: int, side: int) -> bytes:
    """Return an image as JPEG: noise, the same for the same index, tinted by its class."""
    noise = np.frombuffer(np.random.default_rng(index).bytes(side * side * 3), np.uint8)
    tint = np.random.default_rng(index % CLASSES).integers(0, 256 - GRAIN, 3, np.uint8)
    pixels = (noise >> 1).reshape(side, side, 3) + tint
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def _manifest(url: str, recipe: Recipe) -> dict[str, Any] | None:
    """Return an earlier job's manifest; None unless it has this recipe and all its files exist."""
    folder = open_url(url)
    try:
        manifest: dict[str, Any] = json.loads(folder.read(MANIFEST))
    except FileNotFoundError:
        return None
    there = folder.sizes().items()
    same = manifest["recipe"] == asdict(recipe) and manifest["shards"].items() <= there
    return manifest if same else None
