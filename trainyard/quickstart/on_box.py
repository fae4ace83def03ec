"""The code for the box: it is sent by value, since the box does not have our package."""

from __future__ import annotations

from typing import Any

# Metrics; the folder; the checkpoint's folder, "" without one; the fault, "" without one.
Result = tuple[dict[str, Any], str, str, str]


def fit(kind: type[Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> list[Result]:
    """Makes a trainer or a tuner there and runs it; one result for each trial."""
    fitted = kind(*arguments, **options).fit()
    results = [fitted] if hasattr(fitted, "metrics") else list(fitted)
    return [
        (
            dict(each.metrics or {}),
            str(each.path),
            str(each.checkpoint.path) if each.checkpoint else "",
            str(each.error) if each.error else "",
        )
        for each in results
    ]
