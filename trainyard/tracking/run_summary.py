"""A run in short, for lists of thousands: `<storage>/.trainyard/runs/<run>`, a RunSummary as JSON.

The driver stores it when the run has ended, and removes it before the run changes again: while it
is there, it says what the run's own files say. A run that trains, failed or was killed has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.json_values import number

FOLDER = ".trainyard/runs"  # in the store; no run's name begins with a dot


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run in short.

    Attributes:
        name: of the run.
        config: of its last start.
        started: when its newest start began, in milliseconds since 1970; 0 if that is not known.
        epochs: number of their records.
        last: the newest one.
        best: the best `valid_acc`.
        checkpoint: the newest one's name; "" without one.
        fault: the parts that cannot be read; "" for a whole run.
    """

    name: str
    config: dict[str, Any]
    started: int
    epochs: int
    last: dict[str, Any]
    best: float | None
    checkpoint: str
    fault: str = ""


def of(records: Sequence[dict[str, Any]], **others: Any) -> RunSummary:
    """Return the summary of a run with these records of epochs; `others` are its other parts."""
    valid = [number(record.get("valid_acc")) for record in records]
    return RunSummary(
        epochs=len(records),
        last=records[-1] if records else {},
        best=max((each for each in valid if each is not None), default=None),
        **others,
    )
