"""Options by which `train list` and `train runs` show a part: status, user, time, number."""

import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeVar

import typer

from trainyard.client.errors import ClientError

T = TypeVar("T")
DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,4})h)?(?:(\d{1,5})m(?:in)?)?")

Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only so many, the newest.")]
OfStatus = Annotated[str, typer.Option("--status", help="Only these, such as failed.")]
User = Annotated[str, typer.Option("--user", help="Only this user's.")]
Mine = Annotated[bool, typer.Option("--mine", help="Only your own.")]
Since = Annotated[str, typer.Option("--since", help="Only of the last 30m, 12h or 7d.")]


@dataclass(frozen=True)
class Selection:
    """What is shown: "", False and None leave nothing out."""

    status: str = ""
    user: str = ""
    mine: bool = False
    since: str = ""  # as `seconds` takes it
    limit: int | None = None

    def of(self, found: Iterable[tuple[T, str, str, float]], me: str) -> list[T]:
        """Return a part of things, each with its status, user and start in ms since 1970.

        `me` is the name of the user who asks.

        Raises:
            ClientError: `since` is not a time.
        """
        begun = began(self.since) if self.since else 0.0
        wanted = {self.user, me if self.mine else ""} - {""}
        return [
            each
            for each, status, user, started in found
            if self.status.upper() in ("", status) and {user} >= wanted and started >= begun
        ][: self.limit]


def began(since: str) -> float:
    """Return a time in milliseconds since 1970: of ISO 8601, or as long ago as `seconds` takes it.

    Raises:
        ClientError: it is neither.
    """
    with suppress(ValueError):
        return datetime.fromisoformat(since).timestamp() * 1000
    return (time.time() - seconds(since)) * 1000


def seconds(text: str) -> int:
    """Return the seconds of a text such as `7d`, `2h`, `90m` or `1h30m`.

    Raises:
        ClientError: it is not a time.
    """
    match = DURATION.fullmatch(text.replace(" ", ""))
    days, hours, minutes = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    if not (days or hours or minutes):
        raise ClientError(f"{text[:40]!r} is not a time: write one such as 7d, 2h, 90m or 1h30m")
    return ((days * 24 + hours) * 60 + minutes) * 60


ALL = Selection()
