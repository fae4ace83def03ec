"""Jobs, and all that they need on the nodes: what `client` uploads with each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn


def load(run: str, folder: str | Path = "results") -> nn.Module:
    """The model that a run has trained, as `training.results.load` has it."""
    from training import results  # noqa: PLC0415 - whatever imports of this package waits for it

    return results.load(run, folder)
