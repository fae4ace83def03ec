"""A job for drains: two workers, and steps whose count nothing takes back.

    train submit tests/integration/infra/drained.py -- --steps FILE

The first worker writes each step's number to FILE: a step that is trained twice is there twice.
Steps are slow until FILE.go exists.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from trainyard import job
from trainyard.epochs import Totals

STEPS = 40  # an epoch
STEP_S = 0.25

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--steps", default="")
parser.add_argument("--step-seconds", type=float, default=STEP_S)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--max-failures", type=int, default=0)


class Batches:
    """An epoch's batches, which depend on nothing."""

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Any:
        return iter(range(STEPS))


def train_worker(session: job.Session) -> None:
    """Adds up the numbers of its steps."""
    counted = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(counted.weight)
    session.restore(model=counted)
    for epoch in session.epochs_left():
        totals = Totals(session.device)
        for batch in session.epoch_batches(Batches(), epoch, totals):
            step = epoch * STEPS + batch
            if session.rank == 0:
                with Path(session.config["steps"]).open("a") as file:
                    print(step, file=file)
            if not Path(f"{session.config['steps']}.go").exists():
                time.sleep(session.config["step_seconds"])
            counted.weight.data += step
            totals.sums += 1
        seen = totals.sums[2].item()
        record = {"epoch": epoch, "loss": counted.weight.item(), "batches": seen}
        session.report(record, {"job": "drained"}, model=counted)


if __name__ == "__main__":
    job.run(train_worker, "drained", parser)
