"""The folder that an image is built from: docker/<program>, and what else the image holds."""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGED = ROOT / "build" / "images"
# Folders of the checkout by program. Users of the notebook begin with the jobs of train/.
MORE = {"jupyter": "train"}
NAME_LENGTH = 12  # hexadecimal digits of the digest: enough to tell the states of one folder apart
CACHES = "__pycache__"


def folder(program: str, contexts: Path) -> Path:
    """Return the folder; where it takes more than docker/<program>, a copy with all of it.

    An engine does not follow links out of the folder, so a copy has files in their place. It is
    named by its content: two runs at a time do not take it from each other. Earlier ones stay.

    Args:
        program: that the image is for.
        contexts: folder of docker/<program>.
    """
    own = contexts / program
    if program not in MORE:
        return own
    STAGED.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=STAGED) as draft:
        copy = Path(draft, program)
        ignore = shutil.ignore_patterns(CACHES)
        shutil.copytree(own, copy, ignore=ignore)
        shutil.copytree(ROOT / MORE[program], copy / MORE[program], ignore=ignore)
        target = STAGED / f"{program}-{digest(copy, {})[:NAME_LENGTH]}"
        with suppress(OSError):  # it is there
            copy.rename(target)
    return target


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
