"""Reads a picture as a person sees it, the same in training and in serving."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO

import numpy as np
from PIL import Image, ImageOps

from trainyard.errors import JobError


def read(file: str | BytesIO) -> Image.Image:
    """Return the picture in a file, as `rgb` does, or raise a JobError."""
    with readable(file if isinstance(file, str) else "an image"), Image.open(file) as picture:
        return rgb(picture)


def rgb(picture: Image.Image) -> Image.Image:
    """Return a picture upright, in RGB of 8 bits, on white where it is transparent."""
    with suppress(Exception):  # its EXIF data is damaged: the pixels may be whole
        picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I"):  # of 16 bits: Pillow would cut them off at 255
        scaled = np.clip(np.asarray(picture), 0, 2**16 - 1) // 257
        picture = Image.fromarray(scaled.astype(np.uint8))
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    seen = picture.convert("RGBA")
    white = Image.new("RGB", picture.size, "white")
    white.paste(seen, mask=seen)
    return white


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turns any error of reading a picture into a JobError with the picture's name."""
    try:
        yield
    except Exception as error:  # decoders of damaged files may raise anything
        raise JobError(
            f"{name} is not a readable picture ({reason(error)}): replace it, or take it out"
        ) from None


def reason(error: Exception) -> str:
    """Return an error in words, without the address in memory of what Pillow has read."""
    return "cannot identify it" if "identify" in str(error) else str(error) or type(error).__name__
