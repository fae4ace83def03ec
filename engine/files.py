"""Files that are written whole or not at all, and are still there after a power cut."""

import errno
import fcntl
import os
from pathlib import Path

# Never write through an existing name, not even a link.
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVATE = 0o600
NO_SYNC_OF_FOLDERS = (errno.EINVAL, errno.ENOTSUP)  # answers of some network file systems


def replace(path: Path, content: bytes, temporary: Path) -> None:
    """Put a file with mode 0600 in place of another, at once and durably.

    Nobody else may use the temporary name meanwhile, which is on the same file system; the leftover
    of a kill is removed.

    Raises:
        OSError: it could not be written; the former file is untouched.
    """
    os.close(begin(path, content, temporary))


def begin(path: Path, content: bytes, temporary: Path, *, locked: bool = False) -> int:
    """Like `replace`, and return the file's descriptor, open.

    With `locked` it has an exclusive flock, from before it can be seen until it is closed.
    """
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, NEW, PRIVATE)
    try:
        if locked:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
        raise
    return descriptor


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its parents, durably; an existing one stays as it is."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    folder.mkdir(mode, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: without it a power cut undoes a rename."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC_OF_FOLDERS:
            raise
    finally:
        os.close(descriptor)
