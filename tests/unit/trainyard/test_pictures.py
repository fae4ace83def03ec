"""Pictures of each kind are the same for training, streaming and serving."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from trainyard import pictures
from trainyard.data import streaming
from trainyard.data.folder import Pictures
from trainyard.errors import JobError
from trainyard.serving import uploads

SIDE = streaming.SIDE
GREY, RED, WHITE = (116, 116, 116), (255, 0, 0), (255, 255, 255)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def lying() -> bytes:
    """Red is on the right, and EXIF says that this is the bottom."""
    image = Image.new("RGB", (SIDE, SIDE), WHITE)
    image.paste(RED, (SIDE // 2, 0, SIDE, SIDE))
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(image, "JPEG", exif=exif, quality=100, subsampling=0)


def of_16_bits() -> bytes:
    return saved(Image.fromarray(np.full((SIDE, SIDE), 30_000, np.uint16)), "PNG")


def palette() -> bytes:
    image = Image.new("P", (SIDE, SIDE), 1)
    image.putpalette([0, 0, 0, *RED])
    image.paste(0, (0, 0, SIDE, SIDE // 2))
    return saved(image, "PNG", transparency=0)


def see_through() -> bytes:
    image = Image.new("RGBA", (SIDE, SIDE), (*RED, 255))
    image.paste((9, 9, 9, 0), (0, 0, SIDE, SIDE // 2))
    return saved(image, "WEBP", lossless=True, exact=True)


def printed() -> bytes:
    return saved(Image.new("CMYK", (SIDE, SIDE), (0, 255, 255, 0)), "JPEG", quality=100)


def in_a_folder(content: bytes, folder: Path) -> Any:
    (folder / "a").mkdir()
    (folder / "a" / "0.png").write_bytes(content)
    return Pictures(folder, np.asarray)[0][0]


def served(content: bytes, _: Path) -> Any:
    part = uploads.FormPart("images", "", content)
    return np.asarray(uploads._decode(0, part))


def streamed(content: bytes, _: Path) -> Any:
    return streaming.decode(content)


@pytest.mark.parametrize("way", [in_a_folder, served, streamed])
@pytest.mark.parametrize(
    ("made", "top", "bottom"),
    [
        (lying, WHITE, RED),
        (of_16_bits, GREY, GREY),
        (palette, WHITE, RED),
        (see_through, WHITE, RED),
        (printed, RED, RED),
    ],
)
def test_a_picture_is_as_a_person_sees_it(made, top, bottom, way, tmp_path):  # F77
    seen = way(made(), tmp_path)
    assert seen.shape == (SIDE, SIDE, 3)
    for row, colour in ((9, top), (-9, bottom)):
        assert np.abs(seen[row].astype(int) - colour).max() <= 3


def test_a_broken_picture_is_one_message_and_odd_exif_data_none(tmp_path):  # F77
    file = tmp_path / "0.png"
    for content in (b"", b"no picture", of_16_bits()[:90]):
        file.write_bytes(content)
        with pytest.raises(JobError, match=r"0\.png is not a readable picture \([^\n]*\): replace"):
            pictures.read(str(file))
    odd = PngImagePlugin.PngInfo()
    odd.add_text("Raw profile type exif", "\n\n\nodd")
    file.write_bytes(saved(Image.new("RGB", (4, 4)), "PNG", pnginfo=odd))
    assert pictures.read(str(file)).size == (4, 4)
