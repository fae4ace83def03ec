"""Pictures and texts that a program logs: `trainyard.log_image("samples", image, step=3)`.

Each is a file of the run, `logged/<process>/<step>-<name>.png` or `.txt`, which the thread of the
figures stores. Of many with the same name every second one is left out, again and again.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.store.objects import Store
from trainyard.tracking.run_folder import shown_file

if TYPE_CHECKING:
    from PIL.Image import Image

MOST = 100  # with the same name
MOST_NAMES = 20  # in a process
MOST_WAITING = 64  # that the store does not have yet
MOST_SIDE = 1024  # pixels; larger pictures are made smaller
LONGEST_TEXT = 64 * 1024  # characters
COLOURS = (1, 3, 4)
SHAPES = ((), *((each,) for each in COLOURS))  # after height and width


@dataclass
class _Series:
    """Files with the same name: each `every`-th of `count`."""

    files: list[str] = field(default_factory=list)
    every: int = 1
    count: int = -1


class Shown:
    """The pictures and texts of one process, in a folder of a store."""

    def __init__(self, files: Store, folder: str) -> None:
        self._files, self._folder = files, folder
        self._series: dict[str, _Series] = {}
        self._waiting: dict[str, Image | str] = {}
        self._left_out: list[str] = []

    def add(self, name: str, found: Any, step: int) -> None:
        """Takes a copy of a text or a picture; see `picture`.

        Raises:
            ValueError: there are too many, or the name cannot be a file's.
        """
        file = shown_file(name, step, "txt" if isinstance(found, str) else "png")
        if name not in self._series and len(self._series) >= MOST_NAMES:
            raise ValueError(f"{name[:40]!r} and more: at most {MOST_NAMES} names of pictures")
        series = self._series.setdefault(name, _Series())
        series.count += 1
        if series.count % series.every:
            return
        if len(self._waiting) >= MOST_WAITING:
            raise ValueError(f"{name[:40]!r}: {MOST_WAITING} pictures wait to be stored: log fewer")
        self._waiting[file] = found[:LONGEST_TEXT] if isinstance(found, str) else picture(found)
        series.files += [file] if file not in series.files else []
        if len(series.files) > MOST:
            self._left_out += series.files[1::2]
            series.files, series.every = series.files[::2], 2 * series.every

    def store(self) -> None:
        """Stores what waits, and removes what is left out; for one thread."""
        for file, found in [*self._waiting.items()]:
            content = found.encode() if isinstance(found, str) else _png(found)
            self._files.write(f"{self._folder}/{file}", content)
            if self._waiting[file] is found:
                del self._waiting[file]
        left_out = [*self._left_out]
        self._files.delete(*(f"{self._folder}/{file}" for file in left_out))
        del self._left_out[: len(left_out)]


def picture(found: Any) -> Image:
    """Return a copy of a picture: a figure of matplotlib, an image of PIL, a tensor or an array.

    Numbers with a fraction are from 0 to 1, others from 0 to 255; colours are first or last.

    Raises:
        ValueError: it has no form of a picture.
    """
    import numpy as np  # noqa: PLC0415 - slow
    from PIL import Image  # noqa: PLC0415 - slow

    if callable(getattr(found, "savefig", None)):
        content = io.BytesIO()
        found.savefig(content, format="png")
        found = Image.open(content)
    if callable(getattr(found, "detach", None)):
        found = found.detach().cpu()
        found = (found.float() if found.is_floating_point() else found).numpy()
    if not isinstance(found, Image.Image):
        array = np.asarray(found)
        if array.ndim == 3 and array.shape[0] in COLOURS and array.shape[2] not in COLOURS:
            array = np.moveaxis(array, 0, 2)
        kind = array.dtype.kind
        if array.ndim < 2 or array.shape[2:] not in SHAPES or not array.size or kind not in "fbiu":
            raise ValueError(
                f"{array.dtype} of the shape {array.shape}: a picture has numbers of the shape "
                "(height, width), with 1, 3 or 4 colours first or last"
            )
        if kind in "fb":
            array = np.clip(np.nan_to_num(array), 0, 1) * 255.0
        array = np.clip(array, 0, 255).astype(np.uint8)
        found = Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array)
    copy: Image.Image = found.convert("RGBA" if "A" in found.getbands() else "RGB")
    copy.thumbnail((MOST_SIDE, MOST_SIDE))
    return copy


def _png(found: Image) -> bytes:
    content = io.BytesIO()
    found.save(content, format="png")
    return content.getvalue()
