"""A job one of whose workers waits for ever, once: as long as there is the file $HANG_FILE.

train submit tests/integration/training/hanging.py -- --hang-minutes 0.1
"""

import os
import threading
from pathlib import Path

import torch
from torch import distributed

from trainyard import job, options

parser = options.arguments(epochs=2, workers=2)


def wait_for_ever() -> None:
    """Wait for what never comes, as for a lock."""
    threading.Event().wait()


def train_worker(session: job.Session) -> None:
    """Add numbers of all workers up: the other one waits in that."""
    model, fault = torch.nn.Linear(1, 1), Path(os.environ["HANG_FILE"])
    session.restore(model=model)
    for epoch in session.epochs_left():
        number = torch.ones(1)
        for batch in session.epoch_batches(range(4), epoch):
            if (session.rank, epoch, batch) == (1, 1, 2) and fault.exists():
                fault.unlink()
                wait_for_ever()
            distributed.all_reduce(number)
        session.report({"loss": number.item()}, {"job": "hanging"}, model=model)


if __name__ == "__main__":
    job.run(train_worker, "hanging", parser)
