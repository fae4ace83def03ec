"""Trains ResNet-18 on images that stream from the object store through Ray Data, end to end.

    train submit pytorch_training_e2e -- --data-size-gb 1 --num-epochs 2 --num-workers 1
    train submit pytorch_training_e2e -- --smoke-test

An earlier step makes noise images of that size in the store, once (trainyard/data/
synthetic_images.py). Tasks on the nodes read, decode and crop them, and training takes the
batches as they come: memory does not grow with the data. Each epoch it prints its report, as
`{'loss': 2.2817, 'epoch': 0}`, and at the end

    {"total_time_s": 301.2, "throughput_MB_s": 6.8, "peak_memory_mb": 1423.0, …}

where throughput is epochs x data / time, and peak memory that of the workers and Ray's object
store together. It also writes them as results.json into the run's folder of the store, and into
the file that TEST_OUTPUT_JSON of the job's environment names, if set. `--smoke-test` takes one
image and CPUs. Submitted again under the same --name it goes on from the last checkpoint, and its
results are those of the new epochs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from ray import train
from ray.data import DataIterator
from ray.train import DataConfig
from ray.train.torch import prepare_model
from torch.nn.functional import cross_entropy

from trainyard import job, ray_train
from trainyard.data import streaming
from trainyard.data.streaming import MEAN, SIDE, STD
from trainyard.data.synthetic_images import CLASSES, Images, Recipe, ensure
from trainyard.epochs import Totals
from trainyard.memory import PeakMemory
from trainyard.models.resnet import resnet18
from trainyard.options import at_least
from trainyard.run_folder import CHECKPOINT_FILE
from trainyard.runs import Run

JOB = "pytorch_training_e2e"
# The defaults are those of Ray's own benchmark.
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--data-size-gb", type=at_least(0.0), default=1.0, help="GiB of JPEGs")
parser.add_argument("--num-epochs", type=at_least(1), default=2, help="epochs in all")
parser.add_argument("--num-workers", type=at_least(1), default=1, help="processes that train")
parser.add_argument("--data-cpus", type=at_least(1), default=1, help="CPUs that read and decode")
parser.add_argument(
    "--use-gpu", action=argparse.BooleanOptionalAction, default=False, help="a GPU for each worker"
)
parser.add_argument(
    "--smoke-test",
    action=argparse.BooleanOptionalAction,
    default=False,
    help="one image, one worker, CPUs",
)
parser.add_argument("--max-failures", type=at_least(0), default=3, help="restarts of lost workers")
FIXED = ("data_size_gb", "smoke_test")
RESULTS = "results.json"
RESULTS_VARIABLE = "TEST_OUTPUT_JSON"
BATCH_SIZE = 64  # of each worker
LEARNING_RATE, MOMENTUM = 0.001, 0.9  # of SGD
MIB = 1024**2  # bytes
# Describes the model, for using its weights without this job.
DESCRIPTION: dict[str, Any] = {
    "job": JOB,
    "architecture": "resnet18",
    "classes": [f"tint {number}" for number in range(CLASSES)],
    "image_side": SIDE,
    "mean": MEAN,
    "std": STD,
    "file": CHECKPOINT_FILE,
    "prefix": "",
}


def train_worker(session: job.Session) -> None:
    """Runs on each worker: the remaining epochs."""
    device = session.device
    torch.manual_seed(0)
    network = resnet18(CLASSES).to(device)
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE, MOMENTUM)
    session.restore(model=network, optimizer=optimizer)
    model = prepare_model(network)
    shard = train.get_dataset_shard("train")
    for epoch in session.epochs_left():
        model.train()
        totals = Totals(device)
        for images, labels in session.epoch_batches(batches(shard, device), epoch, totals):
            logits = model(images)
            loss = cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals.add(logits, labels, loss)
        train_acc, train_loss = totals.of_all_workers()
        record = {"loss": train_loss, "epoch": epoch, "train_acc": train_acc}
        record |= {"images": int(totals.sums[2])}
        session.report(record, DESCRIPTION, model=network, optimizer=optimizer)
        if session.rank == 0:
            print({"loss": train_loss, "epoch": epoch}, flush=True)


def batches(
    shard: DataIterator, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields an epoch of normalised images (batch, 3, side, side) and labels (batch,)."""
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) * 255 for values in (MEAN, STD))
    for batch in shard.iter_torch_batches(batch_size=BATCH_SIZE):
        # Bytes until here: floats are four times as large to pass on.
        images = batch["image"].to(device).permute(0, 3, 1, 2).float()
        yield images.sub_(mean).div_(std), batch["label"].to(device)


def train_on_stream(run: Run, config: dict[str, Any]) -> None:
    """Makes the data, trains, and writes the results."""
    ray_train.connect()
    begun = time.monotonic()
    recipe = Recipe(images=1) if config["smoke_test"] else Recipe.of_size(config["data_size_gb"])
    images = ensure(run.storage, recipe)
    if images.images < config["num_workers"]:
        raise job.JobError(
            f"{images.images} images are too few for {config['num_workers']} workers: "
            "take a larger --data-size-gb, or fewer --num-workers"
        )
    print(
        f"{images.images} synthetic images, {images.bytes / MIB:.1f} MB, in {images.url}: "
        f"made or found in {time.monotonic() - begun:.1f} s",
        flush=True,
    )
    epochs = config["epochs"] - len(run.metrics())
    begun = time.monotonic()
    with PeakMemory(["RayTrainWorker", streaming.TASK]) as peak:
        job.fit(
            train_worker,
            run,
            config,
            datasets={"train": streaming.stream(images.url, images.shards)},
            dataset_config=DataConfig(execution_options=streaming.limits(config["data_cpus"])),
        )
    write_results(run, images, epochs, time.monotonic() - begun, peak)


def write_results(run: Run, images: Images, epochs: int, seconds: float, peak: PeakMemory) -> None:
    """Prints and stores the results of the epochs."""
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


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    with job.one_message():
        run, config = job.begin(JOB, parser, FIXED, given, epochs="num_epochs")
        if config["smoke_test"] and (config["use_gpu"] or config["num_workers"] > 1):
            raise job.JobError(
                "--smoke-test is one image on CPUs: leave --use-gpu and --num-workers out"
            )
        if not job.is_done(run, config):
            train_on_stream(run, config)
            run.end()
        job.say_completed(run)


if __name__ == "__main__":
    main()
