"""The user's name, for records and messages."""

import getpass
import os


def name() -> str:
    """Return the user's name, or `uid-` with a number in a container that does not know it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the second from Python 3.13 on
        return f"uid-{os.getuid()}"
