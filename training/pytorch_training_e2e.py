"""Trains ResNet-18 on images that stream from the object store through Ray Data, end to end.

    train submit pytorch_training_e2e -- --data-size-gb 1 --num-epochs 2 --num-workers 1
    train submit pytorch_training_e2e -- --smoke-test

It first makes noise images of that size in the store, once (trainyard/data/synthetic_images.py).
Tasks on the nodes read, decode and crop them, and memory does not grow with the data. Each epoch
it prints its report, as `{'loss': 2.2817, 'epoch': 0}`, and at the end

    {"total_time_s": 301.2, "throughput_MB_s": 6.8, "peak_memory_mb": 1423.0, …}

Throughput is epochs x data / time, the memory that of the workers and Ray's object store. The
results are also results.json in the run's folder, and the file that TEST_OUTPUT_JSON names. A run
that is submitted again under its --name resumes; its results are those of the new epochs.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from ray import train
from ray.train import DataConfig
from ray.train.torch import prepare_model
from torch.nn.functional import cross_entropy

from trainyard import job, ray_train
from trainyard.data import streaming
from trainyard.data.streaming import MEAN, SIDE, STD
from trainyard.data.synthetic_images import CLASSES, Recipe, ensure
from trainyard.epochs import Totals
from trainyard.memory import PeakMemory
from trainyard.models.resnet import resnet18
from trainyard.options import at_least
from trainyard.tracking.run_folder import CHECKPOINT_FILE
from trainyard.tracking.runs import Run

JOB = "pytorch_training_e2e"
# The defaults are those of Ray's own benchmark.
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--data-size-gb", type=at_least(0.0), default=1.0, help="GiB of JPEGs")
parser.add_argument("--num-epochs", type=at_least(1), default=2, help="epochs in all")
parser.add_argument("--num-workers", type=at_least(1), default=1, help="processes that train")
parser.add_argument("--data-cpus", type=at_least(1), default=1, help="CPUs that read and decode")
parser.add_argument(
    "--cpu", action=argparse.BooleanOptionalAction, default=False, help="CPUs, also on GPU nodes"
)
parser.add_argument("--smoke-test", action="store_true", help="one image, one worker, CPUs")
parser.add_argument("--max-failures", type=at_least(0), default=3, help="restarts of lost workers")
GOALS = {"loss": "min"}
FIXED = ("data_size_gb", "smoke_test")
BATCH_SIZE = 64  # images, on each worker
LEARNING_RATE, MOMENTUM = 0.001, 0.9  # SGD's
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
    for epoch in session.epochs_left():
        model.train()
        totals = Totals(device)
        batches = streaming.batches(train.get_dataset_shard("train"), BATCH_SIZE, device)
        for images, labels in session.epoch_batches(batches, epoch, totals):
            logits = model(images)
            loss = cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals.add(logits, labels, loss)
        train_acc, train_loss = totals.of_all_workers()
        record = {"loss": train_loss, "epoch": epoch, "train_acc": train_acc}
        record["images"] = int(totals.sums[2])
        session.report(record, DESCRIPTION, model=network, optimizer=optimizer)
        if session.rank == 0:
            print({"loss": train_loss, "epoch": epoch}, flush=True)


def train_on_stream(run: Run, config: dict[str, Any]) -> None:
    """Makes the data, trains, and writes the results."""
    ray_train.connect()
    recipe = Recipe(images=1) if config["smoke_test"] else Recipe.of_size(config["data_size_gb"])
    data = ensure(run.storage, recipe)
    if data.images < config["num_workers"]:
        raise job.JobError(
            f"{data.images} images are too few for {config['num_workers']} workers: "
            "take a larger --data-size-gb, or fewer --num-workers"
        )
    print(f"{data.images} synthetic images, {data.bytes / MIB:.1f} MB, in {data.url}", flush=True)
    epochs = config["epochs"] - len(run.metrics())
    datasets = {"train": streaming.stream(data.url, data.shards)}
    limits = DataConfig(execution_options=streaming.limits(config["data_cpus"]))
    begun = time.monotonic()
    with PeakMemory(["RayTrainWorker", streaming.TASK]) as peak:
        job.fit(train_worker, run, config, datasets=datasets, dataset_config=limits)
    seconds = time.monotonic() - begun
    results = {
        "total_time_s": round(seconds, 2),
        "throughput_MB_s": round(epochs * data.bytes / MIB / seconds, 2),
        "peak_memory_mb": round(peak.processes_mb + peak.object_store_mb, 1),
        "peak_processes_mb": round(peak.processes_mb, 1),
        "peak_object_store_mb": round(peak.object_store_mb, 1),
        "data_size_mb": round(data.bytes / MIB, 1),
        "images": data.images,
        "epochs": epochs,
    }
    text = json.dumps(results)
    print(text, flush=True)
    run.write("results.json", text.encode())
    if path := os.environ.get("TEST_OUTPUT_JSON"):
        Path(path).write_text(text)


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    with job.one_message():
        run, config = job.begin(JOB, parser, FIXED, given, epochs="num_epochs", goals=GOALS)
        if config["smoke_test"] and config["num_workers"] > 1:
            raise job.JobError("--smoke-test is one image on CPUs: leave --num-workers out")
        if not job.is_done(run, config):
            train_on_stream(run, config)
            run.end()
        job.say_completed(run)


if __name__ == "__main__":
    main()
