"""The checkout of this code, and the environment of git for a given folder."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ("Pulumi.yaml", "trainyard/client/cli.py")  # files of each checkout

# What git itself calls local to a repository. Its hooks set some of them.
LOCAL = frozenset(
    f"GIT_{name}"
    for name in (
        *("ALTERNATE_OBJECT_DIRECTORIES", "COMMON_DIR", "CONFIG", "CONFIG_COUNT"),
        *("CONFIG_PARAMETERS", "DIR", "GRAFT_FILE", "IMPLICIT_WORK_TREE", "INDEX_FILE"),
        *("INTERNAL_SUPER_PREFIX", "NO_REPLACE_OBJECTS", "OBJECT_DIRECTORY", "PREFIX"),
        *("REPLACE_REF_BASE", "SHALLOW_FILE", "WORK_TREE"),
    )
)


def is_checkout() -> bool:
    """Whether this code is in a checkout, which has the Pulumi program; a wheel has the client."""
    return _is_checkout(ROOT)


def environment() -> dict[str, str]:
    """Return the environment without variables that point git at another repository."""
    return {name: value for name, value in os.environ.items() if name not in LOCAL}


def another(here: Path | None = None, root: Path = ROOT) -> Path | None:
    """Return the checkout that a folder is in, if it is not that of this code.

    Args:
        here: the folder; by default the working folder, which may be gone.
        root: folder of this code; an installed package has no checkout, and works in all of them.
    """
    found = around(here)
    if found is None or not _is_checkout(root) or found.samefile(root):
        return None
    return found


def around(here: Path | None = None) -> Path | None:
    """Return the checkout that a folder is in, by default the working folder, which may be gone."""
    try:
        here = here or Path.cwd()
    except OSError:
        return None
    return next((folder for folder in (here, *here.parents) if _is_checkout(folder)), None)


def _is_checkout(folder: Path) -> bool:
    try:
        return all((folder / name).is_file() for name in PROGRAM)
    except OSError:  # a folder that this user may not read
        return False
