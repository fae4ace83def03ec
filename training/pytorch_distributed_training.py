"""Trains ResNet-18 on FashionMNIST with several workers of Ray Train, on CPUs or GPUs.

    train submit pytorch_distributed_training
    train submit pytorch_distributed_training --name shirts -- --epochs 4 --workers 2
    train submit pytorch_distributed_training --name mine -- --images /data/mine

Each epoch it prints its report, as `{'loss': 0.4821, 'epoch': 0}`, and

    Epoch: 001/004 | Train. Acc.: 82.611% | Valid. Acc.: 86.340%

FashionMNIST is read from TRAINYARD_DATA_DIR of each node or ~/.cache/trainyard/data, and fetched if
missing. If that fails, scikit-learn's digits stand in for it, and each line with a figure says so;
`--data fashion-mnist` stops instead, `--data digits` does not try. `--images` are your own, with a
folder for each class (trainyard/data/folder.py).

docker/jupyter/examples/pytorch-distributed-training.ipynb has the same training as a notebook.
Checkpoints and metrics go to <storage>/<run>/ (trainyard/tracking/run_folder.py); submitted again
under the same --name it resumes from the last checkpoint.
"""

import argparse
from typing import Any

import torch
from ray.train.torch import prepare_model
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler

from trainyard import data, job
from trainyard.data import fashion_mnist
from trainyard.data.splits import Splits
from trainyard.epochs import Totals, evaluate, share
from trainyard.models.resnet import resnet18
from trainyard.options import absolute_path, at_least, worker_count
from trainyard.tracking.run_folder import CHECKPOINT_FILE

JOB = "pytorch_distributed_training"
# The defaults are those of Ray's own example.
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument(
    "--data",
    choices=["auto", "fashion-mnist", "digits"],
    default="auto",
    help="auto: digits where FashionMNIST cannot be downloaded",
)
parser.add_argument("--images", type=absolute_path, help="your own, in place of --data")
parser.add_argument("--image-side", type=at_least(64), default=64, help="pixels, of --images")
parser.add_argument("--epochs", type=at_least(1), default=4, help="epochs in all")
parser.add_argument("--batch-size", type=at_least(1), default=64, help="images, on each worker")
parser.add_argument("--learning-rate", type=at_least(0.0), default=1e-3, help="Adam's rate")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes weights and order")
parser.add_argument("--workers", type=worker_count, default=2, help="processes that train")
parser.add_argument(
    "--cpu", action=argparse.BooleanOptionalAction, default=False, help="CPUs, also on GPU nodes"
)
parser.add_argument("--max-failures", type=at_least(0), default=3, help="restarts of lost workers")
FIXED = ("data", "images", "image_side", "seed")  # a resumed run must keep its images
# Describes the model, for using its weights without this job.
DESCRIPTION: dict[str, Any] = {
    "job": JOB,
    "architecture": "resnet18",
    "image_side": fashion_mnist.SIDE,
    "mean": fashion_mnist.MEAN,
    "std": fashion_mnist.STD,
    "file": CHECKPOINT_FILE,
    "prefix": "",
}


def train_worker(session: job.Session) -> None:
    """Runs on each worker: the remaining epochs."""
    config, rank, world, device = session.config, session.rank, session.world, session.device
    seed, side, images = config["seed"], config["image_side"], config["images"]
    own = session.together(lambda: data.load(images, side, seed)) if images else None
    torch.manual_seed(seed)
    network = resnet18(len(own.classes) if own else 10).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=config["learning_rate"])
    session.restore(model=network, optimizer=optimizer)
    if own:
        name, splits = images, own
        shown = {"image_side": side, "mean": [0.0] * 3, "std": [1.0] * 3}  # images stay in 0..1
    else:
        # A run that began with the stand-in goes on with it, even if FashionMNIST is there now.
        begun = session.history[0]["data"] if session.history else config["data"]
        (name, splits), shown = load(session, begun), {}
    description = DESCRIPTION | shown | {"classes": list(splits.classes)}

    sampler: DistributedSampler[Any] = DistributedSampler(splits.train, world, rank, seed=seed)
    loader = DataLoader(splits.train, config["batch_size"], sampler=sampler)
    held_out = DataLoader(share(splits.valid, rank, world), config["batch_size"])
    model = prepare_model(network)
    for epoch in session.epochs_left():
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
        # Shares may differ by an image, so no rank may wait for another during measuring, as DDP
        # does to give all of them the first one's batch statistics.
        for statistics in network.buffers():
            distributed.broadcast(statistics, 0)
        measured = evaluate(network, session.measured_batches(held_out), device)
        valid_acc, valid_loss = measured.of_all_workers()
        record = {"loss": train_loss, "epoch": epoch, "data": name, "train_acc": train_acc}
        record |= {"valid_acc": valid_acc, "valid_loss": valid_loss}
        session.report(record, description, model=network, optimizer=optimizer)
        if rank == 0:
            print_epoch(session.history[-1], config["epochs"])


def load(session: job.Session, name: str) -> tuple[str, Splits]:
    """Return the images' name and the images, the same on all workers."""
    if name != "digits":
        try:
            return "fashion-mnist", session.together(fashion_mnist.load)
        except job.JobError as error:
            if name != "auto":
                raise
            if session.rank == 0:
                print(f"{error}; {fashion_mnist.STAND_IN}", flush=True)
    return "digits", fashion_mnist.stand_in()


def print_epoch(record: dict[str, Any], epochs: int) -> None:
    """Prints an epoch's lines."""
    # A figure of the stand-in must not pass for one of the requested images.
    note = {"data": fashion_mnist.STAND_IN} if record["data"] == "digits" else {}
    print({"loss": record["loss"], "epoch": record["epoch"]} | note)
    print(
        f"Epoch: {record['epoch'] + 1:03d}/{epochs:03d}"
        f" | Train. Acc.: {record['train_acc']:.3%} | Valid. Acc.: {record['valid_acc']:.3%}",
        *note.values(),
        sep=" | ",
        flush=True,
    )


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    job.run(train_worker, JOB, parser, FIXED, given, {"valid_acc": "max"})


if __name__ == "__main__":
    main()
