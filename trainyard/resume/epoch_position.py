"""The position between two batches where an epoch was left, so that other workers can continue it.

They draw the earlier batches again and skip them. Each worker's random numbers and sums are kept:
the run ends like an uninterrupted one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from trainyard.epochs import Totals

State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Position:
    """A position in an epoch, which counts from 0."""

    epoch: int
    batches: int  # number of its batches that are done
    batch_size: Any  # the job's
    workers: list[State]  # state of each worker, by rank

    def record(self) -> dict[str, Any]:
        """Return it for a checkpoint: plain values and tensors."""
        return asdict(self)


def state(device: torch.device, totals: Totals | None) -> State:
    """Return a worker's state besides the parts of a checkpoint: random numbers, sums."""
    found = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    if totals is not None:
        found["sums"] = totals.sums.cpu()
    return found


def take_back(found: State, device: torch.device, totals: Totals | None) -> None:
    """Restores the state of a worker."""
    torch.set_rng_state(found["cpu"].cpu())
    if device.type == "cuda" and "cuda" in found:
        torch.cuda.set_rng_state(found["cuda"].cpu(), device)
    if totals is not None and "sums" in found:
        totals.sums.copy_(found["sums"])
