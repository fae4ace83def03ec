"""The folder that an image is built from: docker/<program>, and other files of the image."""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cluster import shipped
from infra.hosts import local

NOTEBOOK = "jupyter"
TRAIN, TRAINING = "train", "training"  # its users begin with the jobs of train/, which need these
NAME_LENGTH = 12  # hexadecimal digits of the digest: enough to tell the states of one folder apart
CACHES = "__pycache__"


def folder(program: str, contexts: Path) -> Path:
    """Return the folder; if it takes more than docker/<program>, a copy with all of it.

    An engine does not follow links out of the folder, so a copy has files in their place. It is
    named by its content, so simultaneous runs do not disturb each other. Earlier ones stay.

    Args:
        program: that the image is for.
        contexts: folder of docker/<program>.
    """
    own = contexts / program
    if program != NOTEBOOK:
        return own
    staged = staging_folder()
    staged.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=staged) as draft:
        copy = Path(draft, program)
        ignore = shutil.ignore_patterns(CACHES)
        shutil.copytree(own, copy, ignore=ignore)
        # In a checkout train/training is a link; an installed package has none.
        jobs = shutil.ignore_patterns(CACHES, TRAINING)
        shutil.copytree(shipped.FOLDER / TRAIN, copy / TRAIN, ignore=jobs)
        shutil.copytree(shipped.CHECKOUT / TRAINING, copy / TRAIN / TRAINING, ignore=ignore)
        target = staged / f"{program}-{digest(copy, {})[:NAME_LENGTH]}"
        with suppress(OSError):  # it exists
            copy.rename(target)
    return target


def staging_folder() -> Path:
    """Return the folder of the copies: in the checkout, else in this user's cache."""
    if shipped.IN_CHECKOUT:
        return shipped.FOLDER / "build" / "images"
    return local.cache_folder() / "images"


def digest(context: Path, build_args: Mapping[str, str]) -> str:
    """Return a digest of all that an image is built from.

    Args:
        context: folder with the Dockerfile.
        build_args: build arguments.

    Returns:
        64 hexadecimal digits.
    """
    found = hashlib.sha256()

    def add(*parts: bytes) -> None:
        for part in parts:
            found.update(len(part).to_bytes(8, "big") + part)

    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        if CACHES in path.parts:
            continue
        name = path.relative_to(context).as_posix()
        add(name.encode(), bytes([path.stat().st_mode & 0o100 != 0]), path.read_bytes())
    for name, value in sorted(build_args.items()):
        add(name.encode(), value.encode())
    return found.hexdigest()
