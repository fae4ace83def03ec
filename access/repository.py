"""git on the folder that it is given, in every environment."""

import os

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


def environment() -> dict[str, str]:
    """The environment, without what would have git work on another repository than it is given."""
    return {name: value for name, value in os.environ.items() if name not in LOCAL}
