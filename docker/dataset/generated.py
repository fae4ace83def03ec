#!/usr/bin/env python3
"""Draws a stand-in for Food-11: the same folders, and 11 classes that can be learned.

    python generated.py --folder /mnt/Food-11

A class is a shape (disc, ring, cross, stripes, ...) in a colour of its own on noise. The colours
of neighbours overlap, shapes differ in place, size and angle: neither tells the class alone. What
is learned here says nothing about food. The manifest's source begins with "generated", so that
programs can say on which data a figure was measured.

The same arguments draw the same images. Needs NumPy and Pillow.
"""

import argparse
import hashlib
import io
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Plane = NDArray[np.float64]
Mask = NDArray[np.bool_]

CLASSES = 11
IMAGES = {"training": 1100, "validation": 330, "evaluation": 330}
SIDE = 64  # pixels
LEAST_SIDE = 16  # pixels; below it a cross looks like a star
MANIFEST = ".manifest.json"  # as dataset.py has it
SOURCE = "generated"

HUE_DEVIATION = 0.05  # of a turn; classes are 1/11 apart, so that neighbours overlap
NOISE_DEVIATION = 0.1  # of the range 0..1

# From coordinates in units of the shape's radius, turned by its angle, to the shape's mask.
SHAPES: Sequence[Callable[[Plane, Plane], Mask]] = (
    lambda x, y: np.hypot(x, y) < 0.8,  # disc
    lambda x, y: np.maximum(abs(x), abs(y)) < 0.7,  # square
    lambda x, y: (np.hypot(x, y) < 1) & (np.hypot(x, y) > 0.6),  # ring
    lambda x, y: np.minimum(abs(x), abs(y)) < 0.25 + 0 * x,  # cross without an end
    lambda x, y: (y > -0.5) & (y < 1 - math.sqrt(3) * abs(x)),  # triangle
    lambda x, y: np.sin(7 * x) > 0 * y,  # stripes
    lambda x, y: (np.sin(6 * x) > 0) ^ (np.sin(6 * y) > 0),  # checks
    lambda x, y: (np.sin(7 * x) > 0.4) & (np.sin(7 * y) > 0.4),  # dots
    lambda x, y: np.hypot(x, y) < 0.6 + 0.4 * np.cos(5 * np.arctan2(y, x)),  # flower
    lambda x, y: np.sin(9 * np.hypot(x, y)) > 0,  # rings without an end
    lambda x, y: (abs(y) < 0.25) & (abs(x) < 1.2),  # bar
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="generated", description="Draws a stand-in for Food-11.")
    parser.add_argument("--folder", type=Path, required=True, help="a new or empty folder")
    for split, count in IMAGES.items():
        shown = f"number of images (default: {count})"
        parser.add_argument(f"--{split}", type=int, default=count, help=shown)
    shown = f"side of an image in pixels (default: {SIDE})"
    parser.add_argument("--side", type=int, default=SIDE, help=shown)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    counts = {split: getattr(options, split) for split in IMAGES}
    try:
        generate(options.folder, counts, options.side, options.seed)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    shown = ", ".join(f"{split} {count}" for split, count in counts.items())
    sys.stdout.write(f"{options.folder}: generated {CLASSES} classes, not food ({shown} images)\n")
    return 0


def generate(
    folder: Path, images: Mapping[str, int] = IMAGES, side: int = SIDE, seed: int = 1
) -> None:
    """Draw images by split into a new or empty folder, and then the manifest, which completes it.

    An image is <split>/class_NN/<class>_<number>.jpg; each class has the same number.

    Raises:
        ValueError: too few or too small images.
        OSError: the folder cannot be written, or holds something.
    """
    for split, count in images.items():
        if count < CLASSES:
            raise ValueError(
                f"{split} {count} is less than one image for each of {CLASSES} classes"
            )
    if side < LEAST_SIDE:
        raise ValueError(f"side {side} is less than {LEAST_SIDE} pixels: shapes would look alike")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: name another folder, or remove it")
    counts: Counter[str] = Counter()
    lines = []
    for split_number, (split, count) in enumerate(images.items()):
        for number in range(count):
            label = number % CLASSES
            # From its own numbers alone: more images leave the ones before them as they are.
            random = np.random.default_rng([seed, split_number, number])
            content = _jpeg(_draw(label, side, random))
            path = Path(split, f"class_{label:02d}", f"{label}_{number // CLASSES}.jpg")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
            counts[path.parent.as_posix()] += 1
            lines.append(f"{path.as_posix()} {len(content)}\n")
    recipe = f"{SOURCE}: side {side}, seed {seed}, images {json.dumps(dict(images))}"
    manifest = {
        "source": recipe,
        "sha256": hashlib.sha256(recipe.encode()).hexdigest(),
        "images": dict(sorted(counts.items())),
        "digest": hashlib.sha256("".join(sorted(lines)).encode()).hexdigest(),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def _draw(label: int, side: int, random: np.random.Generator) -> Plane:
    """Return an image of the class: (side, side, 3) in 0..1."""
    rows, columns = (np.mgrid[:side, :side] + 0.5) / side * 2 - 1
    radius = random.uniform(0.5, 0.8)
    row, column = random.uniform(-0.25, 0.25, 2)
    angle = random.uniform(-0.4, 0.4)
    x, y = (columns - column) / radius, (rows - row) / radius
    x, y = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    inside = SHAPES[label](x, -y)[..., None]
    shape = _colour(random.normal(label / CLASSES, HUE_DEVIATION), random.uniform(0.6, 1))
    ground = _colour(random.uniform(0, 1), random.uniform(0.1, 0.4))
    image = np.where(inside, shape, ground) + random.normal(0, NOISE_DEVIATION, (side, side, 3))
    return np.clip(image, 0, 1)


def _colour(hue: float, brightness: float) -> Plane:
    """Return red, green and blue of a hue in turns: (3,) in 0..1."""
    phases = hue * 2 * math.pi - np.array([0, 2, 4]) * math.pi / 3
    return brightness * (0.5 + 0.5 * np.cos(phases))


def _jpeg(image: Plane) -> bytes:
    file = io.BytesIO()
    Image.fromarray((image * 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(main())
