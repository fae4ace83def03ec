"""Waits for tests: they ask again until something holds, with a deadline instead of a guess."""

import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 150.0  # on a busy machine
PAUSE_S = 0.05
# Ask less often after a long wait: each answer costs processor time that the awaited needs.
PAUSE_SHARE = 0.05  # of the time waited so far
LONGEST_PAUSE_S = 0.5


def wait_for(what: str, probe: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """Polls until `probe` returns something true.

    A probe that raises OSError, for example because its server is not up yet, counts as not yet.

    Args:
        what: the awaited thing, for the message.
        probe: is asked at least once.
        deadline_s: how long.

    Returns:
        The probe's result.

    Raises:
        TimeoutError: with the probe's last result or error.
    """
    begin = time.monotonic()
    while True:
        try:
            last: Any = probe()
        except OSError as error:
            last = error
        else:
            if last:
                return last
        waited = time.monotonic() - begin
        if waited > deadline_s:
            raise TimeoutError(f"{what}: not within {deadline_s} s, last: {last!r}")
        time.sleep(min(max(PAUSE_S, waited * PAUSE_SHARE), LONGEST_PAUSE_S))
