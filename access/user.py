"""The user's name, for records and messages."""

import getpass
import os


def name() -> str:
    """The name of who runs this, and `uid-` with a number in a container that does not know it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the second from Python 3.13 on
        return f"uid-{os.getuid()}"
