"""The library of jobs, and the command `train` in `client/`.

Each job's upload has this package without `access/`, `client/` and `quickstart/` (`.rayignore`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


def load(run: str, folder: str | Path = "results") -> nn.Module:
    """Return a run's trained model; see `trainyard.report.results.load`."""
    from trainyard.report import results  # noqa: PLC0415 - slow: every import of this package would wait

    return results.load(run, folder)
