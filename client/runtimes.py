"""Runtime environments by name, from training/jobs/config/runtime, or by file."""

from __future__ import annotations

from pathlib import Path

from client import scripts
from client.errors import ClientError

FOLDER = scripts.JOBS / "config" / "runtime"


def find(wanted: str) -> Path:
    """Finds the file of a runtime environment.

    Args:
        wanted: a name such as `tpu`, or the path of a YAML or JSON file.

    Raises:
        ClientError: it is neither. Whether a path can be read is told by who reads it.
    """
    path, named = Path(wanted), FOLDER / f"{wanted}.yaml"
    if "/" in wanted or path.suffix or path.is_file():
        return path
    if named.is_file():
        return named
    names = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    raise ClientError(
        f"no runtime environment is called {wanted[:80]!r}: give one of {names}, or the path of a "
        "YAML or JSON file"
    )
