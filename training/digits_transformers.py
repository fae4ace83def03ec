"""Trains a small vision transformer on scikit-learn's digits with Hugging Face's own Trainer.

    train submit digits_transformers
    train submit digits_transformers --runtime-env accelerate    # where nodes lack that package

Its workers share model and digits over the process group that Ray Train makes.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.train import LoggingConfig, RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchTrainer

from trainyard import ray_train
from trainyard.counted_gpus import torch_config
from trainyard.data import digits
from trainyard.data.splits import cut
from trainyard.job import recorded_run
from trainyard.options import at_least
from trainyard.tracking.runs import write_metrics

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--total-epochs", type=at_least(1), default=5, help="epochs in all")
parser.add_argument("--batch-size", type=at_least(1), default=32, help="digits, on each worker")
parser.add_argument("--learning-rate", type=at_least(0.0), default=3e-3, help="AdamW's first rate")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes split and order")
parser.add_argument("--workers", type=at_least(1), default=2, help="processes that train")
parser.add_argument(
    "--cpu", action=argparse.BooleanOptionalAction, default=False, help="CPUs, also on GPU nodes"
)


def train_func(config: dict[str, Any]) -> None:
    """Trains, on each worker."""
    from ray.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
    from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    pixels, labels = digits.read_pixels()
    items = [
        {"pixel_values": image / digits.LEVELS, "labels": label}
        for image, label in zip(pixels, labels, strict=True)
    ]
    train, valid, _ = (
        [items[number] for number in part] for part in cut(len(items), config["seed"], held_out=2)
    )
    network = ViTForImageClassification(
        ViTConfig(
            image_size=digits.SIDE,
            patch_size=4,
            num_channels=1,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_labels=10,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=config["total_epochs"],
            per_device_train_batch_size=config["batch_size"],
            learning_rate=config["learning_rate"],
            seed=config["seed"],
            use_cpu=config["cpu"],
            eval_strategy="epoch",
            logging_strategy="epoch",
            save_strategy="epoch",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = Trainer(
            network,
            arguments,
            train_dataset=train,
            eval_dataset=valid,
            compute_metrics=lambda seen: {
                "acc": float(np.mean(np.argmax(seen.predictions, 1) == seen.label_ids))
            },
            callbacks=[RayTrainReportCallback()],
        )
        prepare_trainer(trainer).train()
    if get_context().get_world_rank() == 0:
        log = trainer.state.log_history
        losses = [entry["loss"] for entry in log if "loss" in entry]
        seen = [entry for entry in log if "eval_loss" in entry]
        records = [
            {"loss": loss, "epoch": epoch, "valid_loss": e["eval_loss"], "valid_acc": e["eval_acc"]}
            for epoch, (loss, e) in enumerate(zip(losses, seen, strict=True))
        ]
        write_metrics(records)
        print(records[-1], flush=True)


def load(folder: Path) -> Any:
    """Return the network of a checkpoint, for `train serve`."""
    from transformers import ViTForImageClassification

    return ViTForImageClassification.from_pretrained(folder / "checkpoint")  # in evaluation mode


def predict(inputs: Any, model: Any) -> Any:
    """Answers digits, each 64 pixels from 0 to 16, with their classes."""
    with torch.inference_mode():
        logits = model(digits.given(inputs) / digits.LEVELS).logits
    return digits.predictions(logits.softmax(1))


def main() -> None:
    """Runs the driver."""
    with recorded_run("digits_transformers", parser, goals={"valid_acc": "max"}) as (run, config):
        use_gpu = "GPU" in ray_train.resources(config)[0]
        TorchTrainer(
            train_func,
            train_loop_config=config | {"cpu": not use_gpu},
            torch_config=torch_config(use_gpu=use_gpu),
            scaling_config=ScalingConfig(num_workers=config["workers"], use_gpu=use_gpu),
            run_config=RunConfig(
                name=run.name,
                storage_path=run.storage,
                logging_config=LoggingConfig(log_level="WARNING"),
            ),
        ).fit()


if __name__ == "__main__":
    main()
