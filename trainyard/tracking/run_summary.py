"""A run in short, for lists of thousands: `<storage>/.trainyard/runs/<run>`, one line of JSON.

    {"run": "first", "config": {...}, "time": "2026-01-31T18:00:00+00:00", "epochs": 10,
     "last": {...}, "best": 0.9, "checkpoint": "checkpoint_000010-5d1c"}

`time` is that of the newest start, `last` the newest epoch's record, `best` the best `valid_acc`.
The driver stores it when the run has ended, and removes it before the run changes again: while it
is there, it says what the run's own files say. A run that trains, failed or was killed has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard import json_values

FOLDER = ".trainyard/runs"  # in the store; no run's name begins with a dot
MOST_BYTES = 2**16  # of one; a run with longer records has none
CHECKPOINT = "checkpoint_"  # how the name of a checkpoint's folder begins

Records = Sequence[dict[str, Any]]


def of(
    run: str, config: dict[str, Any], starts: Records, epochs: Records, folders: Sequence[str]
) -> dict[str, Any]:
    """Return the summary of a run: its name, its files, and the names of its folders in order."""
    checkpoints = [name for name in folders if name.startswith(CHECKPOINT)]
    return {
        "run": run,
        "config": config,
        "time": starts[-1].get("time", "") if starts else "",
        "epochs": len(epochs),
        "last": epochs[-1] if epochs else {},
        "best": json_values.best(epoch.get("valid_acc") for epoch in epochs),
        "checkpoint": checkpoints[-1] if checkpoints else "",
    }
