"""Options by which `train list` and `train runs` show a part: status, user, time, number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar

import typer

from trainyard.access import user as this_user
from trainyard.client.errors import ClientError

T = TypeVar("T")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}

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
    since: str = ""  # a number and m, h or d
    limit: int | None = None

    def of(self, found: Iterable[tuple[T, str, str, float]]) -> list[T]:
        """Return a part of things, each with its status, user and start in ms since 1970.

        Raises:
            ClientError: `since` does not say how long ago.
        """
        begun = began(self.since) if self.since else 0.0
        wanted = {self.user, this_user.name() if self.mine else ""} - {""}
        return [
            each
            for each, status, user, started in found
            if self.status.upper() in ("", status) and {user} >= wanted and started >= begun
        ][: self.limit]


def began(since: str) -> float:
    """Return a time in milliseconds since 1970; its text is a number and m, h or d, or ISO 8601.

    Raises:
        ClientError: it is neither.
    """
    with suppress(ValueError):
        return datetime.fromisoformat(since).timestamp() * 1000
    found = re.fullmatch(r"(\d{1,5})([mhd])", since)
    if not found:
        raise ClientError(
            f"--since {since[:40]!r} is not a time: give it as 30m, 12h or 7d ago, or as a time "
            "such as 2026-11-29T10:15"
        )
    before = datetime.now(UTC) - timedelta(**{UNITS[found[2]]: int(found[1])})
    return before.timestamp() * 1000


ALL = Selection()
