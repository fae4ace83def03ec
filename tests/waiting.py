"""How tests wait: they ask again until something holds, with a deadline instead of a guess."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

DEADLINE_S = 150.0  # of a machine that does much else
PAUSE_S = 0.05
# Who has waited for long asks less often: each answer costs processor time that the awaited needs.
PAUSE_SHARE = 0.05  # of the time waited so far
LONGEST_PAUSE_S = 0.5


def wait_for(what: str, probe: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """Polls until `probe` returns something true.

    A probe that raises OSError, as who asks a server that is not there yet, counts as not yet.

    Args:
        what: is waited for, for the message.
        probe: is asked at least once.
        deadline_s: how long.

    Returns:
        What the probe returned.

    Raises:
        TimeoutError: with what the probe returned, or raised, last.
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
