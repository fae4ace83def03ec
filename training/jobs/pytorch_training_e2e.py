"""Trains ResNet-18 on images that stream from the object store through Ray Data, end to end.

    train submit pytorch_training_e2e -- --data-size-gb 1 --num-epochs 2 --num-workers 1
    train submit pytorch_training_e2e -- --smoke-test

A step before makes noise images of that size in the store, once (training/data/
synthetic_images.py). Tasks on the nodes read, decode and crop them, and training takes the
batches as they come: memory does not grow with the data. Each epoch it prints its report, as
`{'loss': 2.2817, 'epoch': 0}`, and at the end

    {"total_time_s": 301.2, "throughput_MB_s": 6.8, "peak_memory_mb": 1423.0, …}

where throughput is epochs x data / time, peak memory that of the workers and of Ray's object
store together. The same goes as results.json into the run's folder of the store, and into the
file TEST_OUTPUT_JSON of the job's environment, when that is set. `--smoke-test` takes one image
and CPUs. Submitted again under the same --name it goes on from the last checkpoint, and its
results are those of the epochs since.
"""

# ruff: noqa: PLC0415, T201 - a job prints, and the client imports it without torch and Ray

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training import checkpoints, options, progress, ray_train
from training.objects import StorageError
from training.run_folder import CHECKPOINT_FILE
from training.runs import Run

if TYPE_CHECKING:
    import torch
    from ray.data import DataIterator, Dataset

    from training.data.synthetic_images import Images
    from training.memory import PeakMemory

JOB = "pytorch_training_e2e"
CONFIG: dict[str, options.Value] = {
    "data_size_gb": 1.0,
    "num_epochs": 2,
    "num_workers": 1,
    "data_cpus": 1,  # of the tasks that read and decode, of all nodes together
    "max_failures": 3,  # restarts after lost workers
}
FIXED = ("job", "data_size_gb", "smoke_test")
RESULTS = "results.json"
RESULTS_VARIABLE = "TEST_OUTPUT_JSON"

BATCH_SIZE = 64  # of each worker
LEARNING_RATE, MOMENTUM = 0.001, 0.9  # of SGD
MIB = 1024**2  # bytes


def parser() -> argparse.ArgumentParser:
    """The job's arguments; the defaults are those of Ray's own benchmark."""
    p = options.parser(f"train submit {JOB} --", CONFIG)
    options.add(p, "use_gpu", default=False)
    options.add(p, "smoke_test", default=False)
    return p


def resources(arguments: list[str]) -> list[dict[str, float]]:
    """What each worker asks for, and the tasks that feed them."""
    args = parser().parse_args(arguments)
    return [_bundle(args.use_gpu)] * args.num_workers + [_bundle(use_gpu=False)] * args.data_cpus


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
    if config["smoke_test"] and (config["use_gpu"] or config["num_workers"] > 1):
        sys.exit("error: --smoke-test is one image on CPUs: leave --use-gpu and --num-workers out")
    done = len(run.metrics())
    if done >= config["num_epochs"]:
        print(
            f"run {run.name} has finished: {done} epochs are done and --num-epochs is "
            f"{config['num_epochs']}; ask for more epochs, or take another --name"
        )
        return
    _train(run, config, config["num_epochs"] - done)
    run.end()
    print(f"Training completed after {config['num_epochs']} epochs: {run.url}")


def train_worker(config: dict[str, Any]) -> str:
    """What each worker runs: the epochs that are not done yet.

    Args:
        config: the job's arguments, with `storage` and `run`.

    Returns:
        Why the run's checkpoints are not to be had; "" once all epochs are done.
    """
    import torch
    from ray import train
    from ray.train.torch import get_device, prepare_model
    from torch import distributed

    from training import epochs as loop
    from training.data.synthetic_images import CLASSES
    from training.models.resnet import resnet18

    logging.getLogger().setLevel(logging.WARNING)  # Ray Train logs each report it gets
    rank = train.get_context().get_world_rank()
    device = get_device()
    torch.manual_seed(0)
    network = resnet18(CLASSES).to(device)
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE, MOMENTUM)
    run = Run(config["storage"], config["run"]) if rank == 0 else None
    try:
        history = _restore(run, network, optimizer, device)
    except checkpoints.CheckpointError as error:
        return str(error)

    model = prepare_model(network)
    shard = train.get_dataset_shard("train")
    started = time.monotonic() - 60 * (history[-1]["minutes"] if history else 0)
    for epoch in range(len(history), config["num_epochs"]):
        images = _batches(shard, device)
        text = f"epoch {epoch + 1}/{config['num_epochs']}"
        images = progress.watched(images, text, tells=rank == 0)
        totals = loop.train_epoch(model, images, optimizer, device)
        distributed.all_reduce(totals)
        train_acc, loss = loop.accuracy_and_loss(totals)
        record = {"loss": loss, "epoch": epoch, "train_acc": train_acc, "images": int(totals[2])}
        history.append(record | {"minutes": (time.monotonic() - started) / 60})
        _report(run, network, optimizer, history)
        if rank == 0:
            print({"loss": loss, "epoch": epoch}, flush=True)
    return ""


def _train(run: Run, config: dict[str, Any], epochs: int) -> None:
    """Makes the data, trains, and records what it took."""
    ray_train.connect()
    from ray.train import DataConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from training.data import streaming
    from training.data.synthetic_images import Recipe, ensure
    from training.memory import PeakMemory

    begun = time.monotonic()
    recipe = Recipe(images=1) if config["smoke_test"] else Recipe.of_size(config["data_size_gb"])
    try:
        images = ensure(run.storage, recipe)
    except StorageError as error:
        sys.exit(f"error: {error}")
    if images.images < config["num_workers"]:
        sys.exit(
            f"error: {images.images} images are too few for {config['num_workers']} workers: "
            "take a larger --data-size-gb, or fewer --num-workers"
        )
    print(
        f"{images.images} synthetic images, {images.bytes / MIB:.1f} MB, in {images.url}: "
        f"made or found in {time.monotonic() - begun:.1f} s",
        flush=True,
    )
    run.start(config | {"epochs": config["num_epochs"]})  # as `train runs` knows it
    begun = time.monotonic()
    with PeakMemory(["RayTrainWorker", streaming.TASK]) as peak:
        dataset: Dataset = streaming.stream(images.url, images.shards)
        result = ray_train.fit(
            TorchTrainer(
                train_worker,  # type: ignore[arg-type]  # typed as that of Train V1
                train_loop_config=config | {"storage": run.storage, "run": run.name},
                torch_config=ray_train.torch_config(use_gpu=config["use_gpu"]),
                datasets={"train": dataset},
                dataset_config=DataConfig(execution_options=streaming.limits(config["data_cpus"])),
                scaling_config=ScalingConfig(
                    num_workers=config["num_workers"],
                    use_gpu=config["use_gpu"],
                    resources_per_worker=_bundle(config["use_gpu"]),
                ),
                run_config=ray_train.run_config(run.storage, run.name, config["max_failures"]),
            )
        )
    if fault := str(result.return_value):  # type: ignore[attr-defined]  # as above
        sys.exit(f"error: {fault}")
    _write_results(run, images, epochs, time.monotonic() - begun, peak)


def _batches(
    shard: DataIterator, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """An epoch of normalised images (batch, 3, side, side) and labels (batch,)."""
    import torch

    from training.data.streaming import MEAN, STD

    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) * 255 for values in (MEAN, STD))
    for batch in shard.iter_torch_batches(batch_size=BATCH_SIZE):
        # As bytes up to here: floats are four times as much to hand over.
        images = batch["image"].to(device).permute(0, 3, 1, 2).float()
        yield images.sub_(mean).div_(std), batch["label"].to(device)


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
) -> None:
    """Hands the epoch to Ray Train; the first rank, which has the run, adds the checkpoint."""
    import torch

    from training.data.streaming import MEAN, SIDE, STD
    from training.data.synthetic_images import CLASSES

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
        "classes": [f"tint {number}" for number in range(CLASSES)],
        "image_side": SIDE,
        "mean": MEAN,
        "std": STD,
        "file": CHECKPOINT_FILE,
        "prefix": "",
    }
    # Not before the checkpoint: a run that is cut off trains the epoch again, to other minutes.
    checkpoints.report(history[-1], folder, model, stored=partial(run.write_metrics, list(history)))


def _write_results(run: Run, images: Images, epochs: int, seconds: float, peak: PeakMemory) -> None:
    results = {
        "total_time_s": round(seconds, 2),
        "throughput_MB_s": round(epochs * images.bytes / MIB / seconds, 2),
        "peak_memory_mb": round(peak.processes_mb + peak.object_store_mb, 1),
        "peak_processes_mb": round(peak.processes_mb, 1),
        "peak_object_store_mb": round(peak.object_store_mb, 1),
        "data_size_mb": round(images.bytes / MIB, 1),
        "images": images.images,
        "epochs": epochs,
    }
    text = json.dumps(results)
    print(text, flush=True)
    run.write(RESULTS, text.encode())
    if path := os.environ.get(RESULTS_VARIABLE):
        Path(path).write_text(text)


def _bundle(use_gpu: bool) -> dict[str, float]:
    return {"CPU": 1.0} | ({"GPU": 1.0} if use_gpu else {})


if __name__ == "__main__":
    main()
