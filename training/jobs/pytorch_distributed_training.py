"""Trains ResNet-18 on FashionMNIST with several workers of Ray Train, on CPUs or GPUs.

    train submit pytorch_distributed_training
    train submit pytorch_distributed_training --name shirts -- --epochs 4 --workers 2 --use-gpu

Each epoch it prints its report, as `{'loss': 0.4821, 'epoch': 0}`, and

    Epoch: 001/004 | Train. Acc.: 82.611% | Valid. Acc.: 86.340%

FashionMNIST is taken from TRAINYARD_DATA_DIR of each node, else ~/.cache/trainyard/data, and
fetched where it is not there. Where that fails, scikit-learn's digits stand in for it, and each
line with a figure says so; `--data fashion-mnist` stops instead, `--data digits` does not try.

docker/jupyter/examples/pytorch-distributed-training.ipynb has the same training as a notebook.
Checkpoints and metrics go to <storage>/<run>/ (training/run_folder.py); submitted again under
the same --name it goes on from the last checkpoint.
"""

# ruff: noqa: PLC0415, T201 - a job prints, and the client imports it without torch and Ray

from __future__ import annotations

import argparse
import logging
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from training import checkpoints, options, progress, ray_train
from training.run_folder import CHECKPOINT_FILE
from training.runs import Run

if TYPE_CHECKING:
    import torch

    from training.data.splits import Splits

JOB = "pytorch_distributed_training"
CONFIG: dict[str, options.Value] = {
    "epochs": 4,
    "workers": 2,
    "batch_size": 64,  # of each worker
    "learning_rate": 1e-3,  # of Adam
    "seed": 1,
    "max_failures": 3,  # restarts after lost workers
}
FIXED = ("job", "data", "seed")  # a run that goes on must have learned from the same images


def parser() -> argparse.ArgumentParser:
    """The job's arguments; the defaults are those of Ray's own example."""
    p = options.parser(f"train submit {JOB} --", CONFIG)
    p.add_argument("--data", choices=("auto", "fashion-mnist", "digits"), default="auto")
    options.add(p, "use_gpu", default=False)
    return p


def resources(arguments: list[str]) -> list[dict[str, float]]:
    """What each worker asks for."""
    args = parser().parse_args(arguments)
    return [_bundle(args.use_gpu)] * args.workers


def main(arguments: list[str] | None = None) -> None:
    """Runs the job's driver."""
    run = ray_train.open_run(JOB.replace("_", "-"))
    earlier = run.config() or {}
    config = {"job": JOB} | options.parse(parser(), arguments, earlier)
    if other := options.differences(earlier, config, FIXED):
        sys.exit(
            f"error: run {run.name!r} was started otherwise ({other}) and cannot go on so: "
            "take another --name, or the same arguments"
        )
    done = len(run.metrics())
    if done >= config["epochs"]:
        print(
            f"run {run.name} has finished: {done} epochs are done and --epochs is "
            f"{config['epochs']}; ask for more epochs, or take another --name"
        )
        return
    run.start(config)
    if fault := _fit(run, config):
        sys.exit(f"error: {fault}")
    run.end()
    print(f"Training completed after {config['epochs']} epochs: {run.url}")


def train_worker(config: dict[str, Any]) -> str:
    """What each worker runs: the epochs that are not done yet.

    Args:
        config: the job's arguments, with `storage` and `run`.

    Returns:
        Why the data, or the run's checkpoints, are not to be had; "" once all epochs are done.
    """
    import torch
    from ray import train
    from ray.train.torch import get_device, prepare_model
    from torch import distributed
    from torch.utils.data import DataLoader, DistributedSampler

    from training import epochs as loop
    from training.models.resnet import resnet18

    logging.getLogger().setLevel(logging.WARNING)  # Ray Train logs each report it gets
    rank = train.get_context().get_world_rank()
    world = train.get_context().get_world_size()
    device = get_device()
    torch.manual_seed(config["seed"])
    network = resnet18(num_classes=10).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=config["learning_rate"])
    run = Run(config["storage"], config["run"]) if rank == 0 else None
    try:
        history = _restore(run, network, optimizer, device)
    except checkpoints.CheckpointError as error:
        return str(error)
    # A run that began with the stand-in goes on with it, whatever can be fetched by now.
    name, splits, fault = _load(history[0]["data"] if history else config["data"])
    if splits is None:
        return fault

    sampler: DistributedSampler[Any] = DistributedSampler(
        splits.train, world, rank, seed=config["seed"]
    )
    loader = DataLoader(splits.train, config["batch_size"], sampler=sampler)
    held_out = DataLoader(loop.share(splits.valid, rank, world), config["batch_size"])
    model = prepare_model(network)
    started = time.monotonic() - 60 * (history[-1]["minutes"] if history else 0)
    for epoch in range(len(history), config["epochs"]):
        sampler.set_epoch(epoch)
        text = f"epoch {epoch + 1}/{config['epochs']}"
        batches = progress.watched(loader, text, tells=rank == 0)
        totals = loop.train_epoch(model, batches, optimizer, device)
        distributed.all_reduce(totals)
        train_acc, loss = loop.accuracy_and_loss(totals)
        # Shares differ by an image, so that no rank may wait for another in here, as DDP does to
        # give all of them the first one's batch statistics.
        for statistics in network.buffers():
            distributed.broadcast(statistics, 0)
        told = progress.watched(held_out, "measuring", progress.LINE_INTERVAL_S, tells=rank == 0)
        totals = loop.evaluate(network, told, device)
        distributed.all_reduce(totals)
        valid_acc, valid_loss = loop.accuracy_and_loss(totals)
        record = {"loss": loss, "epoch": epoch, "train_acc": train_acc, "valid_acc": valid_acc}
        minutes = (time.monotonic() - started) / 60
        history.append(record | {"valid_loss": valid_loss, "data": name, "minutes": minutes})
        _report(run, network, optimizer, history, splits)
        if rank == 0:
            _print_epoch(history[-1], config["epochs"])
    return ""


def _fit(run: Run, config: dict[str, Any]) -> str:
    ray_train.connect()
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    result = ray_train.fit(
        TorchTrainer(
            train_worker,  # type: ignore[arg-type]  # typed as that of Train V1
            train_loop_config=config | {"storage": run.storage, "run": run.name},
            torch_config=ray_train.torch_config(use_gpu=config["use_gpu"]),
            scaling_config=ScalingConfig(
                num_workers=config["workers"],
                use_gpu=config["use_gpu"],
                resources_per_worker=_bundle(config["use_gpu"]),
            ),
            run_config=ray_train.run_config(run.storage, run.name, config["max_failures"]),
        )
    )
    return str(result.return_value)  # type: ignore[attr-defined]  # as above


def _load(name: str) -> tuple[str, Splits | None, str]:
    """The images, the same on all workers: which they are, and why they are not to be had."""
    from torch import distributed

    from training.data import fashion_mnist
    from training.data.splits import DataError

    if name == "digits":
        return name, fashion_mnist.stand_in(), ""
    splits, fault = None, ""
    try:
        splits = fashion_mnist.load()
    except DataError as error:
        fault = str(error)
    fault = ray_train.shared_fault(fault)
    if not fault:
        return "fashion-mnist", splits, ""
    if name == "auto":
        if distributed.get_rank() == 0:
            print(f"{fault}; {fashion_mnist.STAND_IN}", flush=True)
        return "digits", fashion_mnist.stand_in(), ""
    return name, None, fault


def _restore(
    run: Run | None,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> list[dict[str, Any]]:
    """Loads the run's last valid checkpoint, if it has one; returns the records of its epochs."""
    with checkpoints.restored() as folder:
        if folder is None:
            return []
        state = checkpoints.load(folder / CHECKPOINT_FILE, device)
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    history: list[dict[str, Any]] = state["history"]
    if run is not None:
        where = f"{run.url}/{folder.name}"
        print(f"Restored from checkpoint {where}: {len(history)} epochs are done", flush=True)
        run.write_metrics(history)  # epochs that only a damaged checkpoint had are trained again
    return history


def _report(
    run: Run | None,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    history: list[dict[str, Any]],
    splits: Splits,
) -> None:
    """Hands the epoch to Ray Train; the first rank, which has the run, adds the checkpoint."""
    import torch

    from training.data import fashion_mnist

    if run is None:
        checkpoints.report(history[-1])
        return
    folder = checkpoints.new_folder()
    state = {
        "model": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "history": history,
    }
    torch.save(state, folder / CHECKPOINT_FILE)
    model = {
        "job": JOB,
        "architecture": "resnet18",
        "classes": list(splits.classes),
        "image_side": fashion_mnist.SIDE,
        "mean": fashion_mnist.MEAN,
        "std": fashion_mnist.STD,
        "file": CHECKPOINT_FILE,
        "prefix": "",
    }
    # Not before the checkpoint: a run that is cut off trains the epoch again, to other minutes.
    checkpoints.report(history[-1], folder, model, stored=partial(run.write_metrics, list(history)))


def _print_epoch(record: dict[str, Any], epochs: int) -> None:
    from training.data import fashion_mnist

    # A figure of other images than were asked for must not pass for one of theirs.
    note = {"data": fashion_mnist.STAND_IN} if record["data"] == "digits" else {}
    print({"loss": record["loss"], "epoch": record["epoch"]} | note)
    print(
        f"Epoch: {record['epoch'] + 1:03d}/{epochs:03d}"
        f" | Train. Acc.: {record['train_acc']:.3%} | Valid. Acc.: {record['valid_acc']:.3%}",
        *note.values(),
        sep=" | ",
        flush=True,
    )


def _bundle(use_gpu: bool) -> dict[str, float]:
    return {"CPU": 1.0} | ({"GPU": 1.0} if use_gpu else {})


if __name__ == "__main__":
    main()
