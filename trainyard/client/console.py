"""The client's output to the user's terminal or file: sentences and tables.

`trainyard.access.terminal` takes the effects out of other people's text.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from trainyard.access import terminal, typed
from trainyard.access.terminal import clean, print_json

TIMES, SECONDS, MINUTE = (
    ("started", "since", "begins", "seen"),
    ("seconds",),
    len("2026-01-31 18:00"),
)
DAY_S = 86_400
# Of a cell, by its text: the status of a job or of a service.
STYLES = {
    **dict.fromkeys(("SUCCEEDED", "RUNNING", "HEALTHY"), "green"),
    **dict.fromkeys(("PENDING", "DEPLOYING", "NOT_STARTED", "DELETING"), "yellow"),
    **dict.fromkeys(("FAILED", "UNHEALTHY", "DEPLOY_FAILED"), "red"),
}


_about = typed.DEFAULT_STACK


def about(stack: str) -> None:
    """Sets this command's stack, which the commands in its messages name."""
    global _about  # noqa: PLW0603 - a process runs one command
    _about = stack


def say(text: str, *, rule: bool = False) -> None:
    """Prints a sentence; with a rule above and below it when it is an announcement."""
    terminal.say(text, _about, rule=rule)


def warn(text: str) -> None:
    """Prints a sentence apart from the command's output, which may be a log or JSON."""
    terminal.warn(text, _about)


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Prints a title, and a line for each fact: its name, and its value."""
    say(title)
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        say(f"  {name:<{width}}  {value}")


def print_table(
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool,
    whole: Sequence[str] = (),
    below: str = "",
    empty: str = "",
) -> None:
    """Prints rows as JSON, as a table on a terminal, else as tab-separated lines.

    Args:
        rows: values by column.
        columns: the most important first.
        as_json: all values, also those of no column.
        whole: columns that a terminal never cuts: ids for other commands.
        below: the last column, of long texts: on a terminal they follow the table.
        empty: printed if there are no rows, such as the command that makes some.
    """
    if as_json:
        print_json(rows)
        return
    if not rows and empty:
        warn(empty)
    if not sys.stdout.isatty():
        for cells in (columns, *texts(rows, columns)):
            terminal.print_row(cells)
    elif rows or not empty:
        shown = [name for name in columns if name != below]
        terminal.print_table(shown, texts(rows, shown, short=True), whole=whole, styles=STYLES)
        for row in rows:
            if row.get(below):
                say(f"{clean(row[columns[0]])}: {clean(row[below])}")


def texts(
    rows: Sequence[dict[str, Any]], columns: Sequence[str], *, short: bool = False
) -> list[list[object]]:
    """Return the cells of a table; `short` has times as people tell them, for a terminal."""

    def cell(name: str, value: Any) -> object:
        if short and name in TIMES:
            return ago(str(value))
        if short and name in SECONDS and isinstance(value, int | float):
            return duration(value)
        return "" if value is None else value

    return [[cell(name, row.get(name, "")) for name in columns] for row in rows]


def ago(time: str) -> str:
    """Return how long ago a time was, such as `3 min ago`; of another day, its minute."""
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()
    except (ValueError, TypeError):  # none, or without a zone
        return time[:MINUTE]
    if not 0 <= seconds < DAY_S:
        return time[:MINUTE]
    steps = ((60, 1, "s"), (3600, 60, "min"), (DAY_S, 3600, "h"))
    per, unit = next((per, unit) for most, per, unit in steps if seconds < most)
    return f"{seconds // per:.0f} {unit} ago"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: `26s`, `1m 26s`, `2h 05m`, `3d 04h`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes_left = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{days}d {hours_left:02}h"
    if hours:
        return f"{hours}h {minutes_left:02}m"
    return f"{minutes}m {rest:02}s" if minutes else f"{rest}s"
