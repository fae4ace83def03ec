"""What a node of Ray runs inside `ray start`: it ends with its raylet, however that ended.

`ray start --block` ends, and whatever supervises it starts the node anew, when a process of the
node crashes. A raylet that ended in order is left at that, for `ray stop` ends it so. But it does
so by itself as well: when one of its agents is gone, and when the head took it for dead. Ray has
no setting for that; such a node would never come back.

This module is a file of every node, wherever that runs, and needs nothing beside it but Ray.
"""

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil  # Ray brings its own

HOOK = "RAY_START_HOOK"  # Ray calls what this variable names before it starts a node
FILE = "ray_watch.py"
MODULES = "PYTHONPATH"
RAYLET = "raylet"
POLL_SECONDS = 1.0
# For Ray, which says more of a crash, and then ends by itself.
GRACE_SECONDS = 3.0


def environment(path: str) -> dict[str, str]:
    """Return what has `ray start` do it.

    Args:
        path: of this module's text on the node.
    """
    return {HOOK: f"{Path(path).stem}.watch", MODULES: str(Path(path).parent)}


def text() -> str:
    """Return what this module's file holds."""
    return Path(__file__).read_text()


def watch(_parameters: Any, _head: bool) -> None:
    """Begin to watch; for Ray's hook."""
    # Not for what the node starts.
    for name in (HOOK, MODULES):
        os.environ.pop(name, None)
    threading.Thread(target=_follow, name="ray-watch", daemon=True).start()


def _follow() -> None:
    while (raylet := _raylet()) is None:
        time.sleep(POLL_SECONDS)
    while _runs(raylet):
        time.sleep(POLL_SECONDS)
    time.sleep(GRACE_SECONDS)
    sys.stderr.write(
        f"The raylet (process {raylet.pid}) has ended, so this node ends, to be started anew.\n"
    )
    sys.stderr.flush()
    # As Ray does after a crash: its reaper kills what is left.
    os._exit(1)


def _raylet() -> psutil.Process | None:
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == RAYLET:
                return child
    return None


def _runs(process: psutil.Process) -> bool:
    # Its exit status is Ray's to collect; until then it is a zombie.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
