"""The folder that an image is built from: docker/<program>, and other files of the image."""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from infra.operate.checkout import ROOT

NOTEBOOK = "jupyter"
TRAIN = "train"  # its users begin there
NAME_LENGTH = 12  # hexadecimal digits of the digest: enough to tell the states of one folder apart
CACHES = "__pycache__"


def folder(program: str, contexts: Path) -> Path:
    """Return the folder; if it takes more than docker/<program>, a copy with all of it.

    An engine does not follow links out of the folder, so a copy has files in their place. It is
    named by its content, so simultaneous runs do not disturb each other. Earlier ones stay.
    """
    own = contexts / program
    if program != NOTEBOOK:
        return own
    staged = ROOT / "build" / "images"
    staged.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=staged) as draft:
        copy = Path(draft, program)
        ignore = shutil.ignore_patterns(CACHES)
        shutil.copytree(own, copy, ignore=ignore)
        shutil.copytree(ROOT / TRAIN, copy / TRAIN, ignore=ignore)  # its links are followed
        target = staged / f"{program}-{digest(copy, {})[:NAME_LENGTH]}"
        with suppress(OSError):  # it exists
            copy.rename(target)
    return target


def digest(context: Path, build_args: Mapping[str, str]) -> str:
    """Return a digest, of 64 hexadecimal digits, of all that an image is built from."""
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
