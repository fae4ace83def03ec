"""The classifier of train_ray.py that goes on from its last checkpoint when a worker is lost.

    train submit food11/train_fault_tolerant --name tolerant

or as train_ray.py, by `ray job submit`. While it trains, stop the node that it trains on
(`docker stop ray-worker-0`, or `train drill worker-loss tolerant`): Ray Train starts the worker on
another node, which prints

    Restored on 172.19.0.5 from checkpoint: s3://ray/tolerant/checkpoint_000004-5d1c

and trains on from there. Order, augmentation and dropout of an epoch depend on seed and epoch only,
so that the run ends as if nothing had happened. The same goes for a run that is submitted again
under its --name: what is not given is as it was the last time, and more --total-epochs go on.

What is new beside train_ray.py: `max_failures`, the checkpoint that `trainer.fit` begins with, and
the callback that stores checkpoints, each of them with a manifest (training/checkpoints.py).
"""

# ruff: noqa: PLC0415, T201 - a job prints, and the client imports it without torch and Ray

from __future__ import annotations

import argparse
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

from training import checkpoints, options, ray_train
from training.runs import Run

config: dict[str, Any] = {
    "initial_epochs": 5,  # of the head alone
    "total_epochs": 20,
    "patience": 5,  # epochs without a smaller validation loss
    "batch_size": 32,
    "lr": 1e-4,  # of the head
    "fine_tune_lr": 1e-6,  # of the base at first; doubles each epoch up to the head's
    "scratch_lr": 1e-3,  # of the whole model, where it starts without weights
    "dropout_probability": 0.5,
    "weights": "imagenet",  # or none, or a file that each node has
    "image_side": 224,  # pixels
    "loader_processes": 2,  # decode images beside training
    "seed": 1,
}
scaling: dict[str, Any] = {"num_workers": 1, "gpus_per_worker": 1.0, "cpus_per_worker": 8.0}
# With others of these the run would not be the one that was begun.
FIXED = ("job", "weights", "image_side", "seed")


def train_func(config: dict[str, Any]) -> str:
    """What each worker runs: trains and tests.

    Returns:
        Why data, weights or the run's checkpoints are not to be had; "" after the test.
    """
    import lightning as L  # noqa: N812 - Lightning's own short name
    from lightning.pytorch.callbacks import EarlyStopping
    from ray import train
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer
    from ray.util import get_node_ip_address

    from training.callbacks import (
        LIGHTNING_FILE,
        EpochRecords,
        Finetuning,
        ResumableCheckpoints,
    )
    from training.data import food11
    from training.data.splits import DataError
    from training.models.mobilenet import ARCHITECTURE, PREFIX, Classifier, WeightsError

    for name in ("", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)  # they report what is printed anyway
    run = Run(config["storage"], config["run"])
    fault = ""
    try:
        data = food11.load(
            side=config["image_side"],
            batch_size=config["batch_size"],
            seed=config["seed"],
            processes=config["loader_processes"],
            rank=train.get_context().get_world_rank(),
            world=train.get_context().get_world_size(),
        )
        model = Classifier(
            len(food11.CLASSES),
            weights=config["weights"],
            dropout=config["dropout_probability"],
            lr=config["lr"],
            scratch_lr=config["scratch_lr"],
            seed=config["seed"],
        )
    except (DataError, WeightsError) as error:
        fault = str(error)
    if fault := ray_train.shared_fault(fault):
        return fault
    stopping = EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min")
    records = EpochRecords(config["total_epochs"], generated=data.generated)

    def report(metrics: dict[str, Any], folder: Path | None) -> None:
        # Written once the checkpoint is stored: a resumed run's history is its checkpoint's.
        history = [dict(record) for record in records.history]
        # Some MB, stored in a moment: it is worth waiting for, as no epoch is trained twice then
        # but the one in hand.
        stored = partial(run.write_metrics, history)
        checkpoints.report(metrics, folder, description, stored, wait=True)

    callbacks: list[L.Callback] = [
        stopping,
        records,
        ResumableCheckpoints(data.sampler, stopping, report),
    ]
    if model.pretrained:
        callbacks.append(
            Finetuning(config["initial_epochs"], backbone_initial_lr=config["fine_tune_lr"])
        )
    trainer = L.Trainer(
        max_epochs=config["total_epochs"],
        devices="auto",
        accelerator="auto",
        strategy=RayDDPStrategy(find_unused_parameters=model.pretrained),  # type: ignore[no-untyped-call]
        plugins=[RayLightningEnvironment()],  # type: ignore[no-untyped-call]
        callbacks=callbacks,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer = prepare_trainer(trainer)
    description = {
        "job": "food11/train_fault_tolerant",
        "architecture": ARCHITECTURE,
        "classes": list(food11.CLASSES),
        "image_side": config["image_side"],
        "crop": True,
        "mean": list(food11.MEAN),
        "std": list(food11.STD),
        "file": LIGHTNING_FILE,
        "prefix": PREFIX,
    }
    try:
        with checkpoints.restored() as folder:
            if folder is not None and trainer.is_global_zero:
                node = get_node_ip_address()  # type: ignore[no-untyped-call]
                print(
                    f"Restored on {node} from checkpoint: {run.url}/{folder.name}",
                    flush=True,
                )
            path = None if folder is None else folder / LIGHTNING_FILE
            trainer.fit(model, data.train, data.valid, ckpt_path=path, weights_only=True)
    except checkpoints.CheckpointError as error:
        return str(error)
    trainer.test(model, data.test, verbose=False)
    checkpoints.report({"test_accuracy": records.history[-1]["test_acc"]})  # behind the last one
    if trainer.is_global_zero:
        run.write_metrics(records.history)
    return ""


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    return options.parser("train submit food11/train_fault_tolerant --", config | scaling)


def resources(arguments: list[str]) -> list[dict[str, float]]:
    """What each worker asks for."""
    asked = options.parse(parser(), arguments)
    return [options.bundle(asked)] * asked["num_workers"]


def main(arguments: list[str] | None = None) -> None:
    """Runs the job's driver."""
    run = ray_train.open_run("food11")
    earlier = run.config() or {}
    asked = options.parse(parser(), arguments, earlier)
    asked |= {"job": "food11/train_fault_tolerant", "epochs": asked["total_epochs"]}
    if other := options.differences(earlier, asked, FIXED):
        sys.exit(
            f"error: run {run.name!r} was started otherwise ({other}) and cannot go on so: "
            "take another --name, or the same arguments"
        )
    history = run.metrics()
    if history and "test_acc" in history[-1] and asked["epochs"] <= earlier["epochs"]:
        print(
            f"run {run.name} has finished: {len(history)} epochs are done, at most "
            f"{earlier['epochs']} were asked for; ask for more --total-epochs, or take another "
            f"--name: {run.url}"
        )
        return
    ray_train.connect()
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    run.start(asked)
    scaling_config = ScalingConfig(
        num_workers=asked["num_workers"],
        use_gpu=asked["gpus_per_worker"] > 0,
        resources_per_worker=options.bundle(asked),
    )
    run_config = ray_train.run_config(run.storage, run.name, max_failures=2)
    trainer = TorchTrainer(
        train_func,  # type: ignore[arg-type]  # typed as that of Train V1
        train_loop_config=asked | {"storage": run.storage, "run": run.name},
        torch_config=ray_train.torch_config(use_gpu=asked["gpus_per_worker"] > 0),
        scaling_config=scaling_config,
        run_config=run_config,
    )
    fault = ray_train.fit(trainer).return_value  # type: ignore[attr-defined]  # likewise
    if fault:
        sys.exit(f"error: {fault}")
    run.end()
    print(f"Training completed after {len(run.metrics())} epochs: {run.url}")


if __name__ == "__main__":
    main()
