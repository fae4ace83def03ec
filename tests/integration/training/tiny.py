"""A job that trains for seconds, on workers that fall over when they are told to.

    train submit tests/integration/training/tiny.py -- --epochs 6

Faults are files in the folder TINY_FAULTS, such as `kill-<rank>-<step>`: the worker that comes to
this step of the run removes the file and does it to itself.

kill      SIGKILL
stop      SIGSTOP
native    HOLD_S in a call that leaves Python's lock to other threads, as PyTorch's are
"""

# ruff: noqa: T201 - a job prints

import argparse
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from ray.train.torch import prepare_model
from torch import distributed

from trainyard import job
from trainyard.epochs import seed_epoch
from trainyard.options import at_least

STEPS = 4  # an epoch
BALLAST = 2_500_000  # numbers of 4 bytes: a checkpoint of 10 MB
HOLD_S = 15  # longer than the tests let a worker be silent
MODEL = {"job": "tiny", "classes": ["a", "b"], "file": "checkpoint.pt", "prefix": ""}

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--workers", type=int, default=2, choices=[2])
parser.add_argument("--max-failures", type=at_least(0), default=3)


class Ballast:
    """Makes checkpoints as large as those of a real model."""

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": torch.randn(BALLAST)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert len(state["numbers"]) == BALLAST


def main() -> None:
    """Runs the job's driver."""
    job.run(train_worker, "tiny", parser)


def train_worker(session: job.Session) -> None:
    """Restores, trains on and reports; the loss of every step is the history."""
    network, optimizer = untrained()
    session.restore(model=network, optimizer=optimizer, ballast=Ballast())
    model = prepare_model(network)
    for record in learn(model, optimizer, session.rank, session.epochs_left()):
        session.report(record, MODEL, model=network, optimizer=optimizer, ballast=Ballast())
        if session.rank == 0:
            print(f"epoch {record['epoch'] + 1} done", flush=True)


def untrained() -> tuple[Any, Any]:
    """Two layers and their optimizer, the same on all ranks."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    return network, torch.optim.Adam(network.parameters(), lr=1e-2)


def learn(model: Any, optimizer: Any, rank: int, epochs: range) -> Iterator[dict[str, Any]]:
    """Learns to tell the sign of a sum, together with the other rank; yields each epoch's losses.

    Nothing here needs Ray: calm.py does the same without it.
    """
    for epoch in epochs:
        seed_epoch(1, epoch, rank)
        losses = []
        for step in range(epoch * STEPS, (epoch + 1) * STEPS):
            _fall_over(rank, step)
            images = torch.randn(16, 8)
            labels = (images.sum(1) > 0).long()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            distributed.all_reduce(total)
            losses.append(total.item())
        yield {"epoch": epoch, "loss": sum(losses), "losses": losses}


def _fall_over(rank: int, step: int) -> None:
    faults = Path(os.environ.get("TINY_FAULTS", "/nonexistent"))
    for kind in ("kill", "stop", "native"):
        fault = faults / f"{kind}-{rank}-{step}"
        if not fault.exists():
            continue
        fault.unlink()
        print(f"falls over: {fault.name}", flush=True)
        if kind == "native":
            ctypes.CDLL(None).sleep(HOLD_S)
        else:
            os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


if __name__ == "__main__":
    main()
