"""Trains AlexNet on small images with Ray Train: one worker or many, on CPUs or GPUs.

    train submit alexnet -- --epochs 3
    train submit alexnet --name big -- --data cifar10 --epochs 20 --workers 2 --use-gpu

Each epoch it prints its report, as `{'loss': 1.8459, 'epoch': 0}`, and lines as

    Epoch: 001/003 | Train. Acc.: 30.842% | Loss: 1.8459
    Epoch: 001/003 | Valid. Acc.: 30.700% | Loss: 1.8269
    Time elapsed: 0.58 min

and at the end the total time and the accuracies of all three splits. An epoch's training
accuracy is that of its batches as they were trained on; at the end it is measured anew.

Checkpoints, metrics and curves go to <storage>/<run>/ (training/run_folder.py). Submitted again
under the same --name it goes on from the last checkpoint; arguments that are not given are those of
the last time. Shuffling and dropout depend on seed and epoch only, so that a run that was cut off
ends like one that was not.
"""

# ruff: noqa: PLC0415, T201 - a job prints, and the client imports it without torch and Ray

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from training import checkpoints, data, options, progress, ray_train
from training.run_folder import (
    CHECKPOINT_FILE,
    PROGRESS_VARIABLE,
)
from training.runs import Run

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset

    from training.data.splits import Splits

# With other data or another split, what a resumed model is tested on may have trained it.
FIXED = ("job", "data", "seed", "max_images")
# Of the model, for who uses its weights without this job.
DESCRIPTION: dict[str, Any] = {
    "job": "alexnet",
    "architecture": "alexnet",
    "mean": [0.0, 0.0, 0.0],  # images are 0..1, as they come
    "std": [1.0, 1.0, 1.0],
    "file": CHECKPOINT_FILE,
    "prefix": "",
}


def parser() -> argparse.ArgumentParser:
    """The job's arguments; the defaults of training are the notebook's (models/alexnet.py)."""
    p = argparse.ArgumentParser(prog="train submit alexnet --", description="Train AlexNet.")
    p.add_argument("--data", type=_data, default="digits", help="digits, cifar10 or folder:PATH")
    p.add_argument("--epochs", type=_positive, default=20)
    p.add_argument("--batch-size", type=_positive, default=256, help="of all workers together")
    p.add_argument("--learning-rate", type=float, default=1e-4, help="of Adam")
    options.add(p, "seed", 1)
    p.add_argument("--max-images", type=_positive, help="of each split: try the whole quickly")
    p.add_argument("--workers", type=_positive, default=1)
    p.add_argument("--cpus-per-worker", type=_positive, default=1)
    options.add(p, "use_gpu", default=False)
    options.add(p, "loader_processes", 0)
    options.add(p, "max_failures", 3)
    p.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="for a bar: a line a second, not each half minute",
    )
    return p


def resources(arguments: list[str]) -> list[dict[str, float]]:
    """What each worker asks for."""
    args = parser().parse_args(arguments)
    return [_bundle(args.cpus_per_worker, args.use_gpu)] * args.workers


def main(arguments: list[str] | None = None) -> None:
    """Runs the job's driver."""
    run = ray_train.open_run("alexnet")
    earlier = run.config() or {}
    p = parser()
    p.set_defaults(**{name: earlier[name] for name in vars(p.parse_args([])) if name in earlier})
    args = p.parse_args(arguments)
    if args.progress is None:
        args.progress = os.environ.get(PROGRESS_VARIABLE) == "1" or sys.stdout.isatty()
    config = {"job": "alexnet"} | {k: v for k, v in vars(args).items() if k != "progress"}
    _refuse_other_run(run, earlier, config)
    history = run.metrics()
    if len(history) >= args.epochs:
        print(
            f"run {run.name} has finished: {len(history)} epochs are done and --epochs is "
            f"{args.epochs}; ask for more epochs, or take another --name"
        )
    else:
        run.start(config)
        often = progress.BAR_INTERVAL_S if args.progress else progress.LINE_INTERVAL_S
        fault = _fit(run, config | {"progress_s": often})
        if fault:
            sys.exit(f"error: {fault}")
        run.end()
        history = run.metrics()
    _print_summary(history[-1])
    print(f"Training completed after {len(history)} epochs: {run.url}")


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
    from training.models.alexnet import IMAGE_SIZE, AlexNet

    logging.getLogger().setLevel(logging.WARNING)  # Ray Train logs each report it gets
    rank = train.get_context().get_world_rank()
    world = train.get_context().get_world_size()
    seed, epochs, processes = config["seed"], config["epochs"], config["loader_processes"]
    splits, fault = _load(config, IMAGE_SIZE)
    fault = ray_train.shared_fault(fault)
    if splits is None or fault:
        return fault
    per_worker = max(1, config["batch_size"] // world)
    sampler: DistributedSampler[Any] = DistributedSampler(splits.train, world, rank, seed=seed)
    loader = DataLoader(splits.train, per_worker, sampler=sampler, num_workers=processes)

    device = get_device()
    torch.manual_seed(seed)
    network = AlexNet(len(splits.classes)).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=config["learning_rate"])
    run = Run(config["storage"], config["run"]) if rank == 0 else None
    try:
        history = _restore(run, network, optimizer, device)
    except checkpoints.CheckpointError as error:
        return str(error)
    model = prepare_model(network)
    description = DESCRIPTION | {"classes": list(splits.classes), "image_side": IMAGE_SIZE}

    def measure(split: Dataset[Any]) -> tuple[float, float]:
        part = DataLoader(loop.share(split, rank, world), per_worker, num_workers=processes)
        told = progress.watched(part, "measuring", progress.LINE_INTERVAL_S, tells=rank == 0)
        totals = loop.evaluate(model, told, device)
        distributed.all_reduce(totals)
        return loop.accuracy_and_loss(totals)

    started = time.monotonic() - 60 * (history[-1]["minutes"] if history else 0)
    for epoch in range(len(history), epochs):
        loop.seed_epoch(seed, epoch, rank)
        sampler.set_epoch(epoch)
        text = f"epoch {epoch + 1}/{epochs}"
        batches = progress.watched(loader, text, config["progress_s"], tells=rank == 0)
        totals = loop.train_epoch(model, batches, optimizer, device)
        distributed.all_reduce(totals)
        train_acc, loss = loop.accuracy_and_loss(totals)
        valid_acc, valid_loss = measure(splits.valid)
        record = {
            "loss": loss,
            "epoch": epoch,
            "train_acc": train_acc,
            "valid_acc": valid_acc,
            "valid_loss": valid_loss,
        }
        if epoch + 1 == epochs:
            record["final_train_acc"], _ = measure(splits.train)
            record["test_acc"], _ = measure(splits.test)
        history.append(record | {"minutes": (time.monotonic() - started) / 60})
        _report(run, network, optimizer, history, description)
        if rank == 0:
            _print_epoch(history[-1], epochs)
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
                resources_per_worker=_bundle(config["cpus_per_worker"], config["use_gpu"]),
            ),
            run_config=ray_train.run_config(run.storage, run.name, config["max_failures"]),
        )
    )
    return str(result.return_value)  # type: ignore[attr-defined]  # as above


def _load(config: dict[str, Any], side: int) -> tuple[Splits | None, str]:
    """The data, or why this worker does not have it."""
    from training.data.splits import DataError

    try:
        return data.load(config["data"], side, config["seed"], config["max_images"]), ""
    except DataError as error:
        return None, str(error)


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
    model: dict[str, Any],
) -> None:
    """Hands the epoch to Ray Train; the first rank, which has the run, adds the checkpoint."""
    import torch

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
    # Not before the checkpoint: a run that is cut off trains the epoch again, to other minutes.
    told = partial(run.write_metrics, list(history))
    checkpoints.report(history[-1], folder, model, stored=told)


def _refuse_other_run(run: Run, earlier: dict[str, Any], config: dict[str, Any]) -> None:
    other = [name for name in FIXED if earlier and earlier.get(name) != config[name]]
    if other:
        differences = "; ".join(f"{n} was {earlier.get(n)!r}, now {config[n]!r}" for n in other)
        sys.exit(
            f"error: run {run.name!r} was started otherwise ({differences}) and cannot go on so: "
            "take another --name, or the same arguments"
        )


def _print_epoch(record: dict[str, Any], epochs: int) -> None:
    title = f"Epoch: {record['epoch'] + 1:03d}/{epochs:03d}"
    print({"loss": record["loss"], "epoch": record["epoch"]})
    print(f"{title} | Train. Acc.: {record['train_acc']:.3%} | Loss: {record['loss']:.4f}")
    print(f"{title} | Valid. Acc.: {record['valid_acc']:.3%} | Loss: {record['valid_loss']:.4f}")
    print(f"Time elapsed: {record['minutes']:.2f} min", flush=True)


def _print_summary(last: dict[str, Any]) -> None:
    print(f"Total Training Time: {last['minutes']:.2f} min")
    if "test_acc" in last:  # not where a longer run was cut off and is now asked for less
        print(f"Train ACC: {last['final_train_acc']:.2%}")
        print(f"Validation ACC: {last['valid_acc']:.2%}")
        print(f"Test ACC: {last['test_acc']:.2%}")


def _bundle(cpus: int, use_gpu: bool) -> dict[str, float]:
    return {"CPU": float(cpus)} | ({"GPU": 1.0} if use_gpu else {})


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _data(text: str) -> str:
    try:
        return data.check_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    main()
