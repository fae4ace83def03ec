"""A place of the tests, which the product does not know: each rented machine is a file on a shelf.

`registered` adds it to the list of places, for one command. The variable SHELF names the shelf's
folder, as a cloud's variables name its account.
"""

from pathlib import Path

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from infra import places
places.PACKAGES.insert(0, "shelf")
"""


def registered(folder: Path, command: list[str]) -> list[str]:
    """Return arguments of Python that run a command (`-c …`) of a project that has this place.

    The folder is the program's, and holds this package.
    """
    _, program, *arguments = command
    return ["-c", PROGRAM.format(folder=str(folder)) + program, *arguments]
