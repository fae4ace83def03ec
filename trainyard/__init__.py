"""Jobs and everything they need on the nodes; `client` uploads this package with each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


def load(run: str, folder: str | Path = "results") -> nn.Module:
    """Return a run's trained model; see `trainyard.results.load`."""
    from trainyard import results  # noqa: PLC0415 - slow: every import of this package would wait

    return results.load(run, folder)
