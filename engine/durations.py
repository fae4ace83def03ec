"""Durations as Go, and so Pulumi and Docker, write them: 500ms, 30s, 1m30s."""

import re

SECOND = 10**9  # nanoseconds, Docker's unit of time


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration as Go writes it.

    Raises:
        ValueError: it is not a duration.
    """
    sizes = {"ms": SECOND // 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h))+", text):
        raise ValueError(f"{text!r} is not a duration such as 500ms, 30s or 1m30s")
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    return round(sum(float(number) * sizes[unit] for number, unit in parts))


def format_duration(nanoseconds: int) -> str:
    """The duration as Go, and so the plugin, writes it."""
    if 0 < nanoseconds < SECOND:
        return f"{nanoseconds / (SECOND // 1000):g}ms"
    minutes, rest = divmod(nanoseconds, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / SECOND:.9g}s"
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}" if minutes else text
