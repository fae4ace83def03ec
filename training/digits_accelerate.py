"""Trains a small network on scikit-learn's digits with Hugging Face Accelerate.

    train submit digits_accelerate
    train submit digits_accelerate --runtime-env accelerate    # where nodes lack the package

`Accelerator()` finds the process group that Ray Train made, and shares model and digits over it.
Submitted again under the same --name it resumes from its last checkpoint.
"""

import argparse
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

from trainyard import job
from trainyard.data import digits
from trainyard.data.splits import cut
from trainyard.epochs import Totals, evaluate, share
from trainyard.options import at_least

NAME = "digits_accelerate"
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--epochs", type=at_least(1), default=5, help="epochs in all")
parser.add_argument("--batch-size", type=at_least(1), default=32, help="digits, on each worker")
parser.add_argument("--learning-rate", type=at_least(0.0), default=1e-3, help="Adam's rate")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes split and order")
parser.add_argument("--workers", type=at_least(1), default=2, help="processes that train")
parser.add_argument(
    "--cpu", action=argparse.BooleanOptionalAction, default=False, help="CPUs, also on GPU nodes"
)
parser.add_argument("--max-failures", type=at_least(0), default=3, help="restarts of lost workers")


def train_worker(session: job.Session) -> None:
    """Runs on each worker: the remaining epochs."""
    from accelerate import Accelerator, DataLoaderConfiguration

    config, on_cpu = session.config, session.device.type == "cpu"
    # Otherwise a resumed run would not shuffle like an uninterrupted one.
    by_epoch = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(cpu=on_cpu, dataloader_config=by_epoch)
    pixels, labels = digits.read_pixels()
    data = TensorDataset(pixels.flatten(1) / digits.LEVELS, labels)
    train, valid, _ = (Subset(data, part) for part in cut(len(data), config["seed"], held_out=2))
    torch.manual_seed(config["seed"])
    trained = network()
    optimizer = torch.optim.Adam(trained.parameters(), lr=config["learning_rate"])
    session.restore(model=trained, optimizer=optimizer)
    loader = DataLoader(train, config["batch_size"], shuffle=True)
    model, optimizer, loader = accelerator.prepare(trained, optimizer, loader)
    held_out = DataLoader(share(valid, session.rank, session.world), config["batch_size"])

    for epoch in session.epochs_left():
        loader.set_epoch(epoch)
        model.train()
        totals = Totals(accelerator.device)
        for images, targets in session.epoch_batches(loader, epoch, totals):
            logits = model(images)
            loss = cross_entropy(logits, targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            totals.add(logits, targets, loss)
        train_acc, train_loss = totals.of_all_workers()
        measured = evaluate(model, session.measured_batches(held_out), accelerator.device)
        valid_acc, valid_loss = measured.of_all_workers()
        record = {"loss": train_loss, "epoch": epoch, "train_acc": train_acc}
        record |= {"valid_acc": valid_acc, "valid_loss": valid_loss}
        session.report(record, {"job": NAME}, model=trained, optimizer=optimizer)
        if session.rank == 0:
            print(record, flush=True)


def network() -> nn.Module:
    """Return the untrained network; `train serve` gives it a checkpoint's weights."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def predict(inputs: Any, model: nn.Module) -> Any:
    """Answers digits, each 64 pixels from 0 to 16, with their classes."""
    with torch.inference_mode():
        logits = model(digits.given(inputs).flatten(1) / digits.LEVELS)
    return digits.predictions(logits.softmax(1))


if __name__ == "__main__":
    job.run(train_worker, NAME, parser, ("seed",), goals={"valid_acc": "max"})
