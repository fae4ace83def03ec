"""What an upload would hold, measured by Ray's own packaging rules before anything is sent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from client.errors import ClientError

# State, keys and settings of stacks, in gitignore's patterns. They come last in Ray's list of
# excludes, so that no pattern of the user brings one back.
NEVER_UPLOADED = (
    *(".git", ".pulumi/", "Pulumi.*.yaml", ".env", ".env.*", ".netrc"),
    *("*outputs*.json", "ray_cluster_config.yaml"),
    *("*.pem", "*.key", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".ssh/", ".aws/"),
    *(".venv/", "venv/", "__pycache__/", "*.pyc", ".mypy_cache/", ".ruff_cache/"),
)
MIB = 2**20
LISTED = 10  # entries named when an upload is too large
ZIP_ENTRY_BYTES = 30 + 46  # local and central header of a stored entry, without its name
ZIP_END_BYTES = 22

_silent = logging.getLogger(__name__)
_silent.propagate = False


@dataclass(frozen=True)
class Entry:
    """One file of an upload: its name inside the package and its size in bytes."""

    name: str
    path: Path
    size: int


def entries(folder: Path, excludes: Sequence[str]) -> list[Entry]:
    """Lists what Ray would pack of a folder: its excludes, .gitignore and .rayignore applied."""
    return listing(folder, excludes)[0]


def listing(folder: Path, excludes: Sequence[str]) -> tuple[list[Entry], list[Path]]:
    """The same, and the folders in which it looked."""
    # Ray has no public way to ask this; the versions are pinned, and a test packs for real.
    from ray._private.runtime_env.packaging import (  # noqa: PLC0415 - slow
        _dir_travel,
        _get_excludes,
    )

    root = folder.absolute()
    found: list[Entry] = []
    folders: list[Path] = []

    def visit(path: Path) -> None:
        if path.is_file():
            found.append(Entry(str(path.relative_to(root)), path, path.stat().st_size))
        elif path.is_dir():
            folders.append(path)

    _dir_travel(root, [_get_excludes(root, list(excludes))], visit, True, _silent)
    return found, folders


def check(found: Sequence[Entry], what: str, secrets: Sequence[str]) -> None:
    """Refuses an upload that is too large or that holds a secret of the stack.

    Args:
        found: the entries of one package.
        what: the folder, for messages.
        secrets: values that may be in no file.

    Raises:
        ClientError: with the ten largest entries, or the file that holds a secret.
    """
    from ray._private.ray_constants import (  # noqa: PLC0415 - slow
        DASHBOARD_CLIENT_MAX_SIZE as LIMIT,
    )

    names = sum(2 * len(entry.name.encode()) for entry in found)
    size = sum(entry.size for entry in found) + names + len(found) * ZIP_ENTRY_BYTES + ZIP_END_BYTES
    if size > LIMIT:
        largest = sorted(found, key=lambda entry: -entry.size)[:LISTED]
        listing = "\n".join(f"  {entry.size / MIB:8.1f} MiB  {entry.name}" for entry in largest)
        raise ClientError(
            f"the upload of {what} has {size / MIB:.1f} MiB, at most {LIMIT / MIB:.0f} MiB are "
            f"taken; its largest entries:\n{listing}\nleave them out (.gitignore, .rayignore, or "
            "`excludes` of the runtime environment) and fetch large data on the node instead"
        )
    needles = [secret.encode() for secret in secrets]
    for entry in found:
        content = entry.path.read_bytes()
        if any(needle in content for needle in needles):
            raise ClientError(
                f"{entry.name} in the upload of {what} holds a secret of the stack: "
                "move it out of the folder, or name it in .rayignore"
            )


def is_remote(location: str) -> bool:
    """Whether a working_dir or module is an address that the cluster fetches by itself."""
    return "://" in location and bool(urlsplit(location).scheme)
