"""The reservation of a stack's machines: the time in which they are the user's, in UTC.

Outside it, `up` is refused. At its end the services end by a timer on their machine
(`node/ending.py`), or with the machine, if that is rented.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pulumi
from pydantic import BeforeValidator

from cluster.model import Fault, Model, Says, matching, whole

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(Z|\+00:00)")


def _time(text: object) -> datetime:
    if not isinstance(text, str) or not TIME.fullmatch(text):
        raise ValueError
    return datetime.fromisoformat(text)


Time = Annotated[
    datetime,
    Says(
        "must be a time in UTC",
        'write one such as "2026-12-01T13:00Z", in quotes',
        BeforeValidator(_time),
    ),
]


class BeforeEnd(Model):
    """A command of the user before all services end.

    Attributes:
        run: command of a shell, on the head with the environment of its Ray node.
        seconds: that it may take.
    """

    run: Annotated[str, matching(r"[^\0]+", "must be a command", "write one line for a shell")]
    seconds: Annotated[int, whole(1, 3600)] = 60


class Reservation(Model):
    """From when to when the machines are the user's, and what runs before the end."""

    start: Time
    end: Time
    before_end: BeforeEnd | None = None

    def faults(self) -> Iterator[Fault]:
        """Yield an end that is not after the start."""
        if self.end <= self.start:
            bound = f"must be after start ({shown(self.start)})"
            yield Fault("end", bound, "set it later", shown(self.end))

    @property
    def hook(self) -> dict[str, Any]:
        """Return what the timer is told of the command; {} without one."""
        return {"beforeEnd": self.before_end.model_dump()} if self.before_end else {}

    @property
    def hours(self) -> float:
        return (self.end - self.start) / timedelta(hours=1)

    def refusal(self, stack: str, now: datetime) -> str:
        """Return why the stack cannot be brought up at a time, "" if it can."""
        if now < self.start:
            return (
                f"stack {stack} is reserved from {shown(self.start)} on (reservation.start), in "
                f"{_far(self.start - now)}: until then its machines are somebody else's. Run `up` "
                "then, or set an earlier reservation.start"
            )
        if now >= self.end:
            return (
                f"the reservation of stack {stack} ended at {shown(self.end)} (reservation.end), "
                f"{_far(now - self.end)} ago, and its services with it. Extend it where you made "
                "it, set reservation.end to the new end and run `up` again; results are kept. Or "
                f"run `make down STACK={stack}`"
            )
        return ""


def check(reservation: Reservation, stack: str, now: datetime) -> None:
    """Say from when to when the machines are reserved.

    Raises:
        pulumi.RunError: `up` runs at another time; a preview only warns.
    """
    whole = f"{shown(reservation.start)} to {shown(reservation.end)}"
    pulumi.log.info(f"reserved from {whole} ({_far(reservation.end - reservation.start)})")
    if refusal := reservation.refusal(stack, now):
        if not pulumi.runtime.is_dry_run():
            raise pulumi.RunError(refusal)
        pulumi.log.warn(refusal)


def shown(moment: datetime) -> str:
    """Return a time as users read it."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _far(span: timedelta) -> str:
    hours, minutes = divmod(int(span.total_seconds() // 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
