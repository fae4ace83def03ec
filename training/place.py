"""Where an epoch was left between two batches, so that other workers go on behind it.

They draw the batches before it once more and leave them out. What each worker's random numbers and
sums were is kept: the run ends as one that was not left.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from training.epochs import Totals

State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Place:
    """A place in an epoch.

    Attributes:
        epoch: from 0.
        batches: of it that are done.
        batch_size: as the job was asked for.
        workers: the state of each, by rank.
    """

    epoch: int
    batches: int
    batch_size: Any
    workers: list[State]

    def record(self) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors."""
        return asdict(self)


def state(device: torch.device, totals: Totals | None) -> State:
    """What a worker has beside the parts of a checkpoint: random numbers, sums of the epoch."""
    found = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found["cuda"] = torch.cuda.get_rng_state(device)
    if totals is not None:
        found["sums"] = totals.sums.cpu()
    return found


def take_back(found: State, device: torch.device, totals: Totals | None) -> None:
    """Goes on with the state of a worker."""
    torch.set_rng_state(found["cpu"].cpu())
    if device.type == "cuda" and "cuda" in found:
        torch.cuda.set_rng_state(found["cuda"].cpu(), device)
    if totals is not None and "sums" in found:
        totals.sums.copy_(found["sums"])
