"""Trains AlexNet on small images with Ray Train: one worker or many, on CPUs or GPUs.

    train submit alexnet -- --epochs 3
    train submit alexnet --name big -- --data cifar10 --epochs 20 --workers 2
    train submit alexnet -- --images /data/mine    # your own, with a folder for each class
    train submit alexnet -- --cpu    # also where nodes have GPUs

Each epoch it prints its report, as `{'loss': 1.8459, 'epoch': 0}`, and lines as

    Epoch: 001/003 | Train. Acc.: 30.842% | Loss: 1.8459
    Epoch: 001/003 | Valid. Acc.: 30.700% | Loss: 1.8269
    Time elapsed: 0.58 min

and at the end the total time and the accuracies of all three splits. An epoch's training
accuracy is that of its batches during training; at the end it is measured again.

Checkpoints, metrics and curves go to <storage>/<run>/ (trainyard/tracking/run_folder.py). Submitted
again under the same --name it resumes from the last checkpoint; arguments that are not given keep
their last values. Shuffling, crops and dropout depend only on seed and epoch, so that an
interrupted run ends like an uninterrupted one.
"""

import argparse
from typing import Any

import torch
from ray.train.torch import prepare_model
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from trainyard import data, job
from trainyard.epochs import Totals, evaluate, seed_epoch, share
from trainyard.models.alexnet import IMAGE_SIZE, AlexNet
from trainyard.options import absolute_path, at_least, worker_count
from trainyard.tracking.run_folder import CHECKPOINT_FILE

JOB = "alexnet"
# The defaults of training are the notebook's (trainyard/models/alexnet.py).
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--data", choices=["digits", "cifar10"], default="digits")
parser.add_argument("--images", type=absolute_path, help="your own, in place of --data")
parser.add_argument("--epochs", type=at_least(1), default=20, help="epochs in all")
parser.add_argument("--batch-size", type=at_least(1), default=256, help="images, on all workers")
parser.add_argument("--learning-rate", type=at_least(0.0), default=1e-4, help="Adam's rate")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes split, order and dropout")
parser.add_argument("--max-images", type=at_least(1), help="images of each split; None: all")
parser.add_argument("--workers", type=worker_count, default=1, help="processes that train")
parser.add_argument("--cpus-per-worker", type=at_least(1), default=1, help="CPUs of each worker")
parser.add_argument(
    "--cpu", action=argparse.BooleanOptionalAction, default=False, help="CPUs, also on GPU nodes"
)
parser.add_argument("--loader-processes", type=at_least(0), default=0, help="processes that decode")
parser.add_argument("--max-failures", type=at_least(0), default=3, help="restarts of lost workers")
# With other data or another split, a resumed model might be tested on its training data.
FIXED = ("data", "images", "seed", "max_images")
# Describes the model, for using its weights without this job.
DESCRIPTION: dict[str, Any] = {
    "job": JOB,
    "architecture": "alexnet",
    "image_side": IMAGE_SIZE,
    "mean": [0.0, 0.0, 0.0],  # images stay in 0..1
    "std": [1.0, 1.0, 1.0],
    "file": CHECKPOINT_FILE,
    "prefix": "",
}


def train_worker(session: job.Session) -> None:
    """Runs on each worker: the remaining epochs."""
    config, rank, world, device = session.config, session.rank, session.world, session.device
    seed, processes = config["seed"], config["loader_processes"]
    splits = session.together(
        lambda: data.load(
            config["images"] or config["data"], IMAGE_SIZE, seed, config["max_images"]
        )
    )
    per_worker = max(1, config["batch_size"] // world)
    sampler: DistributedSampler[Any] = DistributedSampler(splits.train, world, rank, seed=seed)
    loader = DataLoader(splits.train, per_worker, sampler=sampler, num_workers=processes)

    torch.manual_seed(seed)
    network = AlexNet(len(splits.classes)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=config["learning_rate"])
    session.restore(model=network, optimizer=optimizer)
    model = prepare_model(network)
    description = DESCRIPTION | {
        "classes": list(splits.classes),
        "resized_side": splits.resized_side,
    }

    def measure(split: Dataset[Any]) -> list[float]:
        part = DataLoader(share(split, rank, world), per_worker, num_workers=processes)
        return evaluate(model, session.measured_batches(part), device).of_all_workers()

    for epoch in session.epochs_left():
        seed_epoch(seed, epoch, rank)
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
        valid_acc, valid_loss = measure(splits.valid)
        record = {"loss": train_loss, "epoch": epoch, "train_acc": train_acc}
        record |= {"valid_acc": valid_acc, "valid_loss": valid_loss}
        if epoch + 1 == config["epochs"]:
            record["final_train_acc"], _ = measure(splits.train)
            record["test_acc"], _ = measure(splits.test)
        session.report(record, description, model=network, optimizer=optimizer)
        if rank == 0:
            print_epoch(session.history[-1], config["epochs"])


def print_epoch(record: dict[str, Any], epochs: int) -> None:
    """Prints an epoch's lines."""
    title = f"Epoch: {record['epoch'] + 1:03d}/{epochs:03d}"
    print({"loss": record["loss"], "epoch": record["epoch"]})
    print(f"{title} | Train. Acc.: {record['train_acc']:.3%} | Loss: {record['loss']:.4f}")
    print(f"{title} | Valid. Acc.: {record['valid_acc']:.3%} | Loss: {record['valid_loss']:.4f}")
    print(f"Time elapsed: {record['minutes']:.2f} min", flush=True)


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    run = job.run(train_worker, JOB, parser, FIXED, given, {"valid_acc": "max"})
    last = run.metrics()[-1]
    print(f"Total Training Time: {last['minutes']:.2f} min")
    if "test_acc" in last:  # missing if a longer run was interrupted and now has fewer epochs
        print(f"Train ACC: {last['final_train_acc']:.2%}")
        print(f"Validation ACC: {last['valid_acc']:.2%}")
        print(f"Test ACC: {last['test_acc']:.2%}")


if __name__ == "__main__":
    main()
