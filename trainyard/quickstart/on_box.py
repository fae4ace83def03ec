"""The code for the box or a stack: it is sent by value, since a box does not have our package."""

from __future__ import annotations

import json
import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

OUTCOME = "trainyard_fit.json"

# Metrics; the folder; the checkpoint's folder, "" without one; the fault, "" without one.
Result = tuple[dict[str, Any], str, str, str]


class Training:
    """A training or a search. As a detached actor it outlives the connection that began it."""

    def __init__(self, *work: Any) -> None:
        self._work = work
        self._outcome: Future[list[Result]] | None = None

    def fit(self) -> list[Result]:
        """Runs the work; each further call waits for the same results, or raises the same error."""
        if self._outcome is None:
            self._outcome = Future()
            try:
                self._outcome.set_result(fit(*self._work))
            except Exception as error:
                self._outcome.set_exception(error)
        return self._outcome.result()


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


def keep(kind: type[Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Does the same as a job of a stack, and leaves the results in the output of its run."""
    text = json.dumps(fit(kind, arguments, options), default=_plain)
    Path(os.environ["TRAINYARD_OUTPUT"], OUTCOME).write_text(text)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
