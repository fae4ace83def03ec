"""Kills a program that a supervisor restarts: by its process id, once it has one.

While a program is between two starts its process id is 0, and `os.kill(0, …)` kills the whole
process group of the tests, with the make and the CI run that they are in.
"""

from collections.abc import Callable
from contextlib import suppress

import psutil

from tests.waiting import wait_for

SECONDS = 60


def kill(pid: Callable[[], int]) -> int:
    """Kill a program, which has to run soon.

    Args:
        pid: of the program; 0 while it does not run.

    Returns:
        The process id that it had.
    """

    def killed() -> int:
        if found := pid():
            # For a moment after a kill, the supervisor still gives the id of the ended process.
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(found)
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
                    return found
        return 0

    ended: int = wait_for("the program to be killed", killed, SECONDS)
    return ended
