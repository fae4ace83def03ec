"""Whether somebody holds a lock: asked as any other process would ask."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def is_locked(path: Path | str) -> bool:
    """Whether a file or folder has an exclusive flock; it has none of this call's afterwards."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
