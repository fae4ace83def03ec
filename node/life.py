"""Whether a service is up, and why not: one rule for programs, containers and pods.

Knows nothing of Pulumi, and runs on other machines too. A place has a Driver for its services.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

STARTS_LIMIT = 3  # a program that ended this often before it was up will not come up
ENDINGS = 3  # a service that ended this often within the time below keeps ending
WINDOW_SECONDS = 600.0
STEADY_SECONDS = 60.0  # after this time without an end a service is healthy again
LOG_LINES = 20  # of a message
SEARCHED_LINES = 200  # of a log, for an error
LONGEST = 200  # characters of a log's line in a report
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ERROR = re.compile(r"(?i)error|exception|fatal|fail|cannot|denied|in use|no such|exit code=")


class ServiceError(Exception):
    """A service cannot reach its declared state; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A service at one moment.

    Attributes:
        runs: whether its program runs, or its pods are ready.
        start: tells this start of the program from any other.
        over: why no later look will find it up, "" if one may.
        why: reasons why it does not run, a line each.
        at_work: whether its time does not pass, as while an image is pulled.
    """

    runs: bool
    start: int = 0
    over: str = ""
    why: Sequence[str] = ()
    at_work: bool = False


class Driver(Protocol):
    """One service, as its place asks for it.

    Attributes:
        checks: it is up when all of these answer; none where its place asks them.
        steady_seconds: for which it has to run until it is up.
        whole_log: command that shows all of its log, "" for none.
        poll_seconds: between two looks.
    """

    name: str
    checks: Sequence[Any] = ()
    steady_seconds: float = 0.0
    whole_log: str = ""
    poll_seconds: float

    def look(self) -> Look:
        """Look at it; a ServiceError says that it is gone, or that its place does not answer."""

    def ask(self, _check: Any) -> str:
        """Return why a check fails, "" if it succeeds."""
        return ""

    def lately(self) -> tuple[int, str, float]:
        """Return how often it ended lately, how the last time, and for how long it has run."""
        return 0, "", STEADY_SECONDS

    def amiss(self, *, asked: bool) -> list[str]:  # noqa: ARG002 (most need it)
        """Return what else is wrong while it runs; its checks may have just answered (`asked`)."""
        return []

    def log(self, lines: int) -> list[str]:
        """Return the last lines of its log."""


def await_up(service: Driver, timeout: float, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until a service runs, answers and stays up, for some seconds; `sleep` may end the wait.

    Raises:
        ServiceError: it keeps ending, or the time is over.
    """
    left, now = timeout, time.monotonic()
    start, waiting = None, [*service.checks]
    while True:
        look = service.look()
        if look.start != start:  # what answered may have ended since
            start, waiting = look.start, [*service.checks]
        silent = ""
        while look.runs and waiting and not (silent := service.ask(waiting[0])):
            del waiting[0]
        why = [silent] if silent else [*look.why]
        if look.runs and not waiting:
            if not (why := _unsteady(service)):
                return
            waiting = [*service.checks]  # another may have answered that held its port
        before, now = now, time.monotonic()
        left -= 0.0 if look.at_work else now - before
        if look.over or left < 0:
            late = f"is not up after {timeout:g} s (setting startTimeoutSeconds)"
            why += [line for line in service.amiss(asked=True) if line not in why]
            raise ServiceError(failure(service, look.over or late, why))
        sleep(service.poll_seconds)


def _unsteady(service: Driver) -> list[str]:
    """Return why a service that answers is not up."""
    times, how, up = service.lately()
    if loops(times, up):
        return [recent_ends(times, how)]
    if up < service.steady_seconds:
        return [f"has run for {up:.0f} of {service.steady_seconds:g} s"]
    return service.amiss(asked=True)


def fault(service: Driver) -> str:
    """Return the fault of a service that was up, "" without one."""
    try:
        look = service.look()
        what = [*look.why]
        if not what:
            times, how, up = service.lately()
            if loops(times, up) or not look.runs:
                what = [f"{service.name} {recent_ends(times, how) if how else 'is stopped'}"]
            what += service.amiss(asked=False)
        return f"{'; '.join(what)}{last_error(service.log(SEARCHED_LINES))}" if what else ""
    except ServiceError as error:
        return str(error)


def failure(service: Driver, what: str, why: Sequence[str] = ()) -> str:
    """Return the fault of a service, the reasons, and the last lines of its log."""
    log = service.log(LOG_LINES)
    whole = f" ({service.whole_log} has all)" if service.whole_log else ""
    said = [f"Its last log lines{whole}:", *log] if log else ["Its log is empty"]
    return "\n".join([f"{service.name} {what}", *(f"  {line}" for line in why), *said])


def loops(times: int, up_seconds: float) -> bool:
    """Return whether a service that ended so often lately has not run for long since."""
    return times >= ENDINGS and up_seconds < STEADY_SECONDS


def recent_ends(times: int, how: str) -> str:
    """Return how often a service ended lately, and how the last time, such as `exit code 1`."""
    lately = f" {times} times in the last {WINDOW_SECONDS / 60:.0f} min" if times > 1 else ""
    return f"ended{lately} ({how})"


def last_error(lines: Iterable[str]) -> str:
    """Return the last line of a log that tells of an error, or its last one; "" for none."""
    said = [line for each in lines if (line := COLOUR.sub("", each).strip())]
    found = next((line for line in reversed(said) if ERROR.search(line)), said[-1] if said else "")
    return f"; its log says: {found[:LONGEST]}" if found else ""


def other_store(before: str, after: str, where: str, kept: str) -> str:
    """Return why one store cannot replace the running one; "" if it can, or if one is "" (none)."""
    if not before or not after or before == after:
        return ""
    return (
        f"objectStore is now {after}, and this stack runs {before}, whose results in {where} "
        f"cannot be read by {after}. Nothing was changed. Set objectStore to {before} to keep "
        f"using them; or end the stack ({kept}), and bring it up again: {after} starts empty"
    )
