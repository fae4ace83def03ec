"""Failure points: named steps at which a test makes a process fail.

`TRAINYARD_FAIL_AT="state.write kill 3"` kills the process with SIGKILL at its third `state.write`.
The name of a system error instead of `kill` raises that error: ENOSPC for a full disk, ECONNREFUSED
for a store that is away. `clock` sets the process's clock back by a day. Without the variable,
nothing happens.
"""

import errno
import itertools
import os
import signal
import time

VARIABLE = "TRAINYARD_FAIL_AT"
DAY_SECONDS = 86400
_reached = itertools.count(1)


def reach(point: str) -> None:
    """Fail at this step if the variable asks for it.

    Raises:
        OSError: the error that the variable names.
    """
    asked = os.environ.get(VARIABLE, "").split()
    if asked[:1] != [point] or next(_reached) != int(asked[2]):
        return
    if asked[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif asked[1] == "clock":
        right = time.time
        time.time = lambda: right() - DAY_SECONDS
    else:
        number = getattr(errno, asked[1])
        raise OSError(number, os.strerror(number))
