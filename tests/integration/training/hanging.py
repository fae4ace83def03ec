"""A job one of whose workers hangs on purpose, at its first start only.

    train submit tests/integration/training/hanging.py -- --hang-minutes 0.1

The other worker waits for it in the mean of their gradients. The variable HANG_FILE names a file
that the hanging worker removes.
"""

import os
import threading
from pathlib import Path

import torch
from torch import distributed

from trainyard import job, options

BATCHES = 4

parser = options.arguments(epochs=2, workers=2)


def wait_for_ever() -> None:
    """Wait for what never comes, as for a lock."""
    threading.Event().wait()


def train_worker(session: job.Session) -> None:
    """Adds numbers of all workers up, batch by batch."""
    model = torch.nn.Linear(1, 1)
    session.restore(model=model)
    fault = Path(os.environ["HANG_FILE"])
    for epoch in session.epochs_left():
        total = torch.zeros(1)
        for batch in session.epoch_batches(range(BATCHES), epoch):
            if session.rank == 1 and epoch == 1 and batch == 2 and fault.exists():
                fault.unlink()
                wait_for_ever()
            number = torch.full((1,), float(batch))
            distributed.all_reduce(number)
            total += number
        session.report({"loss": total.item()}, {"job": "hanging"}, model=model)


if __name__ == "__main__":
    job.run(train_worker, "hanging", parser)
