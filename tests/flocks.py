"""A check whether somebody holds a lock, as any other process would see it."""

import fcntl
import os
from pathlib import Path


def is_locked(path: Path | str) -> bool:
    """Whether a file or folder has an exclusive flock; this call leaves none."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
