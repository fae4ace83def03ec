"""Kills a program that a supervisor starts anew: by its process id, once it has one.

While a program is between two starts its process id is 0, and `os.kill(0, …)` kills the whole
process group of the tests, with the make and the CI run that they are in.
"""

from collections.abc import Callable
from contextlib import suppress

import psutil

from tests.waiting import wait_for

SECONDS = 60
NOBODY = 2**31 - 1  # above every process id


def kill(pid: Callable[[], int]) -> int:
    """Kill a program, which has to run soon.

    Args:
        pid: of the program; 0 while it does not run.

    Returns:
        The process id that it had.
    """

    def running() -> psutil.Process | None:
        # For a moment after a kill, its supervisor still tells the process id of the one before.
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid() or NOBODY)
            return process if process.status() != psutil.STATUS_ZOMBIE else None
        return None

    found: psutil.Process = wait_for("the program to be killed", running, SECONDS)
    found.kill()
    return found.pid
