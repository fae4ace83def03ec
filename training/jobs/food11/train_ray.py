"""The classifier of train_lightning.py with Ray Train: one worker or several, whole GPUs or parts.

    train submit food11/train_ray --name whole
    train submit food11/train_ray --name two -- --num-workers 2
    train submit food11/train_ray --name half -- --gpus-per-worker 0.5 --cpus-per-worker 4

or as the other scripts, `ray job submit ... -- python train_ray.py` without --entrypoint-num-gpus
and -cpus: the workers ask by themselves. It prints what train_lightning.py prints. Checkpoints,
metrics and curves go to <storage>/<run>/ (training/run_folder.py).

What is new beside train_lightning.py: the scaling, that all of Lightning's code is in a function
for the workers, Ray's strategy, plugin and callback, and the driver that starts the workers. With
several workers the batch size is each one's own.
"""

# ruff: noqa: PLC0415, T201 - a job prints, and the client imports it without torch and Ray

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any

from training import options, ray_train
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


def train_func(config: dict[str, Any]) -> str:
    """What each worker runs: trains and tests.

    Returns:
        Why the data or the weights are not to be had; "" after the test.
    """
    import lightning as L  # noqa: N812 - Lightning's own short name
    from lightning.pytorch.callbacks import EarlyStopping
    from ray import train
    from ray.train.lightning import (
        RayDDPStrategy,
        RayLightningEnvironment,
        RayTrainReportCallback,
        prepare_trainer,
    )

    from training.callbacks import EpochRecords, Finetuning
    from training.data import food11
    from training.data.splits import DataError
    from training.models.mobilenet import Classifier, WeightsError

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
    callbacks: list[L.Callback] = [
        EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min"),
        EpochRecords(config["total_epochs"], generated=data.generated, write=run.write_metrics),
        RayTrainReportCallback(),
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
    trainer.fit(model, data.train, data.valid)
    trainer.test(model, data.test, verbose=False)
    return ""


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    return options.parser("train submit food11/train_ray --", config | scaling)


def resources(arguments: list[str]) -> list[dict[str, float]]:
    """What each worker asks for."""
    asked = options.parse(parser(), arguments)
    return [options.bundle(asked)] * asked["num_workers"]


def main(arguments: list[str] | None = None) -> None:
    """Runs the job's driver."""
    asked = options.parse(parser(), arguments)
    ray_train.connect()
    from ray.train import LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    run = ray_train.open_run("food11")
    run.start({"job": "food11/train_ray", "epochs": asked["total_epochs"]} | asked)
    scaling_config = ScalingConfig(
        num_workers=asked["num_workers"],
        use_gpu=asked["gpus_per_worker"] > 0,
        resources_per_worker=options.bundle(asked),
    )
    run_config = RunConfig(  # type: ignore[call-arg]  # typed as that of Train V1
        name=run.name,
        storage_path=run.storage,
        logging_config=LoggingConfig(log_level="WARNING"),
    )
    trainer = TorchTrainer(
        train_func,  # type: ignore[arg-type]  # likewise
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
