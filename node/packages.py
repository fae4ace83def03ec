"""What jobs need besides Ray, for pods whose image has Ray alone.

A pod's first container runs this module in the pod's own image. It installs the packages of
docker/ray, pinned by hashes, into a folder that Python takes for the user's own (PYTHONUSERBASE):
its packages come before the image's, and after those of a job's runtime environment. Where pods
share the folder's volume, one installs and the others wait for it.

This module is a file of these pods, and needs Python alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

FILE = "packages.py"
BASE = "PYTHONUSERBASE"  # variable with the folder
PINNED = ("torch.txt", "requirements.txt")
RAY = re.compile(r"^ray==.*\n(?: .*\n)*", re.MULTILINE)  # the image's own stays
# Its arguments: this module's file, then those of `main`.
START = (
    "for program in python uv; do command -v $program >/dev/null || "
    '{ echo "The image has no $program: $4" >&2; exit 1; }; done; exec python "$@"'
)


def files(folder: Path) -> dict[str, str]:
    """Return the files of a pod: this module, and the requirements in docker/ray."""
    found = {name: RAY.sub("", (folder / name).read_text()) for name in PINNED}
    return {FILE: Path(__file__).read_text(), **found}


def version(of: Mapping[str, str]) -> str:
    """Return a text that changes with the packages of `files`."""
    return hashlib.sha256("".join(of[name] for name in PINNED).encode()).hexdigest()[:12]


def main(ray: str, python: str, advice: str) -> None:
    """Check the image, and install once; the advice says which image it should be."""
    found = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found != python:
        sys.exit(f"The image has Python {found}, not {python}: {advice}")
    installed = next((each.version for each in metadata.distributions(name="ray")), "none")
    if installed != ray:
        sys.exit(f"The image has Ray {installed}, not {ray}: {advice}")
    target = Path(os.environ[BASE])
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _install(target, Path(__file__).parent)


def _install(target: Path, pinned: Path) -> None:
    new = target.with_name("new")
    shutil.rmtree(new, ignore_errors=True)  # of a pod that was killed
    packages = new / Path(site.getusersitepackages()).relative_to(target)
    install = ["uv", "pip", "install", "--no-deps", "--require-hashes", "--python", sys.executable]
    listed = [f"--requirements={pinned / name}" for name in PINNED]
    # In the same volume, so that uv links its files instead of copying them.
    environment = {"UV_CACHE_DIR": str(new / "cache"), **os.environ}
    done = subprocess.run(
        [*install, f"--target={packages}", *listed], env=environment, check=False
    ).returncode
    if done:
        sys.exit(
            f"The packages that jobs need were not installed (uv ended with {done}): nodes need a "
            "package index and 8 GB of disk, or set images.ray to an image that has them "
            "(docs/kubernetes.md)"
        )
    shutil.rmtree(new / "cache", ignore_errors=True)
    os.sync()  # a folder of this name is whole, also after the machine has crashed
    new.rename(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
