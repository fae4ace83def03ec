"""Supervised learning: the epochs of a script that has a network, data, a loss and metrics."""

# ruff: noqa: T201 - a job prints

from collections.abc import Callable, Sequence
from typing import Any

import torch
from ray.train.torch import prepare_model
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from trainyard.epochs import Totals, seed_epoch, share
from trainyard.job import Session

Figure = Callable[[Any, Any], torch.Tensor]


def train(
    session: Session,
    network: Callable[[], nn.Module],
    data: Callable[[], Sequence[Dataset[Any]]],
    loss: Figure,
    **metrics: Figure,
) -> None:
    """Trains the remaining epochs with Adam; each worker calls it.

    Args:
        session: with the arguments epochs, batch_size, learning_rate and seed.
        network: makes the untrained network.
        data: loads the items to learn and those to measure, each a pair of input and target.
        loss: of outputs and targets: the mean over a batch.
        **metrics: as the loss, for the items to measure, by their names in the run's record.
    """
    config, device = session.config, session.device
    learned, held_out = session.together(data)
    sampler: DistributedSampler[Any] = DistributedSampler(
        learned, session.world, session.rank, seed=config["seed"]
    )
    loader = DataLoader(learned, config["batch_size"], sampler=sampler)
    own_share = share(held_out, session.rank, session.world)
    torch.manual_seed(config["seed"])
    bare = network().to(device)
    optimizer = torch.optim.Adam(bare.parameters(), lr=config["learning_rate"])
    session.restore(model=bare, optimizer=optimizer)
    model = prepare_model(bare)
    for epoch in session.epochs_left():
        # So that an interrupted run ends like an uninterrupted one.
        seed_epoch(config["seed"], epoch, session.rank)
        sampler.set_epoch(epoch)
        model.train()
        trained, found = Totals(device, 1), Totals(device, 1 + len(metrics))
        for batch in session.epoch_batches(loader, epoch, trained):
            inputs, targets = (part.to(device) for part in batch)
            value = loss(model(inputs), targets)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            trained.add_means(len(targets), value)
        model.eval()
        with torch.no_grad():
            for batch in session.measured_batches(DataLoader(own_share, config["batch_size"])):
                inputs, targets = (part.to(device) for part in batch)
                outputs = model(inputs)
                figures = [figure(outputs, targets) for figure in (loss, *metrics.values())]
                found.add_means(len(targets), *figures)
        names = ("loss", "valid_loss", *metrics)
        means = [*trained.of_all_workers(), *found.of_all_workers()]
        record = {"epoch": epoch} | dict(zip(names, means, strict=True))
        session.report(record, {"job": config["job"]}, model=bare, optimizer=optimizer)
        if session.rank == 0:
            shown = ", ".join(f"{name} {record[name]:.4g}" for name in names)
            print(f"epoch {epoch + 1}: {shown}")
