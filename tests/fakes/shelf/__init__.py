"""A place of the tests, which the product does not know: each rented machine is a file on a shelf.

`registered` adds it to the list of places, for one command. The variable SHELF names the shelf's
folder, as a cloud's variables name its account.
"""

from pathlib import Path

PROGRAM = """
from infra import places
places.PACKAGES.insert(0, "shelf")
"""


def registered(project: Path, command: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return arguments of Python and variables of a command of a project that has this place.

    Args:
        project: its folder; the program's own folder in it holds this package.
        command: arguments of Python, which begin with `-c`.
    """
    _, program, *arguments = command
    return ["-c", PROGRAM + program, *arguments], {"PYTHONPATH": str(project / "infra")}
