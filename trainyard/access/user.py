"""The user's name, for records and messages, and the user's folders."""

import getpass
import os
from pathlib import Path


def name() -> str:
    """Return the user's name, or `uid-` with a number in a container that does not know it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the second from Python 3.13 on
        return f"uid-{os.getuid()}"


def folder(variable: str, default: str) -> Path:
    """Return the folder that a variable of XDG names, or the default one below the home."""
    # The specification says to ignore a path that is not absolute.
    given = Path(os.environ.get(variable, ""))
    return given if given.is_absolute() else Path.home() / default
