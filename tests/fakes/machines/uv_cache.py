"""This machine's uv cache, which machines see too; their changes never reach it.

Each user of a machine gets an overlay over it (guest/uv-cache). So an environment of gigabytes is
installed in seconds, as links, and a machine's changes to the cache go with it.
"""

import subprocess
import tempfile
from pathlib import Path

from infra.machines import local


def folder() -> Path:
    """Return this machine's cache, which may be empty."""
    path = Path(_uv("cache", "dir").strip())
    path.mkdir(parents=True, exist_ok=True)
    return path


def fill(requirements: Path) -> None:
    """Fill the cache with a lock's packages; if they are there, this makes and removes links."""
    with tempfile.TemporaryDirectory(prefix="trainyard-", dir=folder().parent) as place:
        _uv("venv", "--quiet", place)
        lock = ("--require-hashes", "--requirements", str(requirements))
        _uv("pip", "install", "--quiet", f"--python={place}", *lock)


def _uv(*arguments: str) -> str:
    uv = local.environment_program("uv")
    return subprocess.run([uv, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout
