"""Whether a service that was up ends again and again, and the words for it, in each place.

Knows nothing of Pulumi, and runs on other machines too.
"""

import re
from collections.abc import Iterable

ENDINGS = 3  # a service that ended this often within the time below keeps ending
WINDOW_SECONDS = 600.0
STEADY_SECONDS = 60.0  # a service that has run for so long again is well
LONGEST = 200  # characters of a log's line
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ERROR = re.compile(r"(?i)error|exception|fatal|fail|cannot|denied|in use|no such|exit code=")


def loops(times: int, up_seconds: float) -> bool:
    """Return whether a service that ended so often lately has not run for long since."""
    return times >= ENDINGS and up_seconds < STEADY_SECONDS


def ended(times: int, how: str, lately: str = f" in the last {WINDOW_SECONDS / 60:.0f} min") -> str:
    """Return how often a service ended, and how the last time, such as `exit status 1`."""
    return f"ended{f' {times} times{lately}' if times > 1 else ''} ({how})"


def last_error(lines: Iterable[str]) -> str:
    """Return the last line of a log that tells of an error, or its last one; "" for none."""
    said = [line for each in lines if (line := COLOUR.sub("", each).strip())]
    found = next((line for line in reversed(said) if ERROR.search(line)), said[-1] if said else "")
    return f"; its log says: {found[:LONGEST]}" if found else ""
