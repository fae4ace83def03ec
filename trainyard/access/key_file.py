"""The file of a private SSH key, which is used only when nobody else could read or replace it."""

import os
import stat
from pathlib import Path

from trainyard.access.ssh import NoKeyError

SIZE_LIMIT = 64 * 1024  # bytes; the largest RSA key has 13 kB
OTHERS = stat.S_IRWXG | stat.S_IRWXO  # mode bits that the file must not have


class KeyFileError(NoKeyError):
    """A key file cannot be used as it is; the message says what to do."""


class MissingKeyFileError(KeyFileError):
    """The file is missing."""


def read(path: Path, advice: str) -> str:
    """Return the text of a private key's file; advice is what to do if it cannot be read.

    Raises:
        MissingKeyFileError: the file is missing.
        KeyFileError: it is a symbolic link, not a file or not text, or others may read it.
    """
    try:
        # Others may change the target of a link, also after it was checked.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno()).st_mode
            mode = stat.S_IMODE(found)
            if not stat.S_ISREG(found):
                raise KeyFileError(
                    f"key file {path} is not a file: name the private key's own file"
                )
            if mode & OTHERS:
                raise KeyFileError(
                    f"key file {path} may be read by others (mode {mode:04o}, at most 0600): "
                    f"chmod 600 {path}; if others have read it, make a new key"
                )
            return file.read(SIZE_LIMIT).decode("ascii")
    except FileNotFoundError as error:
        raise MissingKeyFileError(_unreadable(path, str(error.strerror), advice)) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        if path.is_symlink():
            reason = "it is a symbolic link"
        raise KeyFileError(_unreadable(path, reason, advice)) from None


def _unreadable(path: Path, reason: str, advice: str) -> str:
    return f"cannot read the stack's key file {path} ({reason}): {advice}"
