"""A job for any number of workers: each epoch is one step over the same examples.

    train submit tests/integration/training/elastic.py -- --workers 2:3 --go FOLDER

Before an epoch each worker touches `at-<epoch>-<workers>` in FOLDER, and waits for `go-<epoch>`.
"""

import time
from pathlib import Path
from typing import Any

import torch
from ray.train.torch import prepare_model
from torch import distributed

from trainyard import job, options

EXAMPLES = 12  # which 2 workers share as well as 3
MODEL = {"job": "elastic", "classes": ["a", "b"], "file": "checkpoint.pt", "prefix": ""}

parser = options.arguments(epochs=3, go=".")


def main() -> None:
    """Runs the job's driver; a lost node's place is looked for at once."""
    job.RESIZE_S = 2.0
    job.run(train_worker, "elastic", parser)


def train_worker(session: job.Session) -> None:
    """Trains on while the number of workers changes, which stands in the record."""
    network, optimizer = untrained()
    session.restore(model=network, optimizer=optimizer)
    model, go = prepare_model(network), Path(session.config["go"])

    def wait(epoch: int) -> None:
        (go / f"at-{epoch}-{session.world}").touch()
        while not (go / f"go-{epoch}").exists():
            time.sleep(0.05)

    for epoch in session.epochs_left():
        wait(epoch)
        loss = learn(model, optimizer, epoch, session.rank, session.world)
        distributed.all_reduce(loss)
        record = {"epoch": epoch, "loss": loss.item() / session.world, "workers": session.world}
        session.report(record, MODEL, model=network, optimizer=optimizer)


def untrained() -> tuple[Any, Any]:
    """Return a network and its optimizer, the same for all workers."""
    torch.manual_seed(1)
    network = torch.nn.Linear(8, 2)
    return network, torch.optim.Adam(network.parameters(), lr=1e-2)


def learn(model: Any, optimizer: Any, epoch: int, rank: int, world: int) -> torch.Tensor:
    """Do an epoch's step with a worker's part of the examples; return the part's mean loss."""
    drawn = torch.randn(EXAMPLES, 8, generator=torch.Generator().manual_seed(epoch))[rank::world]
    loss = torch.nn.functional.cross_entropy(model(drawn), (drawn.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().clone()


if __name__ == "__main__":
    main()
