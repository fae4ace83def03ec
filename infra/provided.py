"""Shared code of the dynamic resources of this package."""

from typing import Any

from pulumi import dynamic

from trainyard.access import terminal

# A variable of the user of `up`: Ray is restarted although its jobs are lost.
FORCE = "TRAINYARD_FORCE"


def say(message: str) -> None:
    """Tell the user something from within a provider: both engines show its output."""
    terminal.warn(message)


def difference(
    olds: dict[str, Any], news: dict[str, Any], replaces: list[str]
) -> dynamic.DiffResult:
    """Return the difference between old outputs and new inputs.

    Args:
        olds: old outputs.
        news: new inputs; None stands for a value that only outputs have.
        replaces: properties whose change needs a new resource, the old one going first.
    """
    changed = [key for key, value in news.items() if value is not None and olds.get(key) != value]
    return dynamic.DiffResult(
        changes=any(key != "__provider" for key in changed),
        replaces=[key for key in replaces if key in changed],
        delete_before_replace=True,
    )
