"""File assets: inputs that stand for the content of a file, with its hash as Pulumi's.

Both engines compare them by hash alone, so the same content under another path is not a change.
"""

import hashlib
from pathlib import Path
from typing import Any

from engine.errors import EngineError, UnsupportedError

SIGNATURE = "4dabf18193072939515e22adb298388d"  # key that marks a special value
ASSET = "c44067f5952c0a294b673a41bacd8c17"  # its value for a file or a text
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"  # its value for a folder or a packed file


def is_asset(value: Any) -> bool:
    """True for an asset or an archive."""
    return isinstance(value, dict) and value.get(SIGNATURE) in (ASSET, ARCHIVE)


def with_hash(value: dict[str, Any]) -> dict[str, Any]:
    """The asset with its hash. The CLI's assets have one, and may lack the path.

    Raises:
        EngineError: the file cannot be read.
        UnsupportedError: it is not a file.
    """
    if value.get("hash"):
        return value
    path = value.get("path")
    if value[SIGNATURE] != ASSET or not isinstance(path, str):
        raise UnsupportedError("assets other than a FileAsset")
    try:
        with Path(path).open("rb") as file:
            return value | {"hash": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise EngineError(f"the asset {path} cannot be read: {error.strerror}") from None


def by_hash(value: Any) -> Any:
    """The value for comparisons: an asset counts by its hash alone."""
    return value.get("hash") if is_asset(value) else value
