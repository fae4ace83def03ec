"""Trains a small network on scikit-learn's digits: change it into your job.

    train submit JOB
    train submit JOB --name first -- --epochs 10 --workers 2

Submitted again under the same --name it resumes from its last checkpoint.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from ray.train.torch import prepare_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

from trainyard import data, job
from trainyard.epochs import Totals, evaluate, seed_epoch, share
from trainyard.options import at_least

NAME = "JOB"
SIDE = 16  # pixels
# The client reads these calls without running this script: docs/train.md.
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--epochs", type=at_least(1), default=5, help="epochs in all")
parser.add_argument("--batch-size", type=at_least(1), default=64, help="images, on each worker")
parser.add_argument("--learning-rate", type=at_least(0.0), default=1e-3, help="Adam's first rate")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes split, order and dropout")
parser.add_argument("--workers", type=at_least(1), default=1, help="processes that train")
parser.add_argument(
    "--cpu", action=argparse.BooleanOptionalAction, default=False, help="CPUs, also on GPU nodes"
)
parser.add_argument("--max-failures", type=at_least(0), default=3, help="restarts of lost workers")
FIXED = ("seed",)  # a resumed run must not change these


def train_worker(session: job.Session) -> None:
    """Runs on each worker: the remaining epochs."""
    config, rank, world, device = session.config, session.rank, session.world, session.device
    seed, batch_size = config["seed"], config["batch_size"]
    # Each worker loads the data; if one cannot, all end.
    splits = session.together(lambda: data.load("digits", SIDE, seed))
    sampler: DistributedSampler[Any] = DistributedSampler(splits.train, world, rank, seed=seed)
    loader = DataLoader(splits.train, batch_size, sampler=sampler)
    held_out = DataLoader(share(splits.valid, rank, world), batch_size)

    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16 * (SIDE // 2) ** 2, len(splits.classes)),
    ).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=config["learning_rate"])
    session.restore(model=network, optimizer=optimizer)
    model = prepare_model(network)

    for epoch in session.epochs_left():
        seed_epoch(seed, epoch, rank)  # so that an interrupted run ends like an uninterrupted one
        sampler.set_epoch(epoch)
        model.train()
        totals = Totals(device)
        for batch in session.epoch_batches(loader, epoch, totals):
            images, labels = (part.to(device) for part in batch)
            logits = model(images)
            loss = cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals.add(logits, labels, loss)
        train_acc, train_loss = totals.of_all_workers()
        measured = evaluate(model, session.measured_batches(held_out), device)
        valid_acc, valid_loss = measured.of_all_workers()
        record = {"loss": train_loss, "epoch": epoch, "train_acc": train_acc}
        record |= {"valid_acc": valid_acc, "valid_loss": valid_loss}
        # `train serve` needs more of a description: DESCRIPTION in alexnet.py.
        session.report(record, {"job": NAME}, model=network, optimizer=optimizer)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {train_loss:.4f}, valid. acc. {valid_acc:.2%}")


if __name__ == "__main__":
    job.run(train_worker, NAME, parser, FIXED)
