"""The file in the notebook's folder whose name says when the reservation ends."""

import shlex
from datetime import datetime

PREFIX = "reservation-ends-"


def command(folder: str, end: datetime) -> str:
    """Return the shell command that writes it, in place of one for another end.

    Args:
        folder: the notebook's.
        end: when the reservation ends, in UTC.
    """
    name = f"{PREFIX}{end:%Y-%m-%d-%H%M}-UTC.txt"
    text = f"All services end at {end:%Y-%m-%d %H:%M} UTC. Files in this folder are kept."
    there = shlex.quote(folder)
    return f"cd {there} && rm -f {PREFIX}* && echo {shlex.quote(text)} >{name}"
