"""The classifier of train_lightning.py with Ray Train: one worker or several, whole GPUs or parts.

    train submit food11/train_ray --name whole
    train submit food11/train_ray --name two -- --num-workers 2
    train submit food11/train_ray --name half -- --gpus-per-worker 0.5 --cpus-per-worker 4

or like train_lightning.py, by `ray job submit`, without --entrypoint-num-gpus and -cpus: the
workers ask for their own resources. With several workers the batch size is that of each worker.
Checkpoints, metrics and curves go to <storage>/<run>/ (trainyard/tracking/run_folder.py).
"""

import argparse
from typing import Any

from ray.train import LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from trainyard.counted_gpus import torch_config
from trainyard.job import recorded_run
from trainyard.options import absolute_path, at_least, between

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--initial-epochs", type=at_least(0), default=5, help="epochs of the head only")
parser.add_argument("--total-epochs", type=at_least(1), default=20, help="epochs in all")
parser.add_argument("--patience", type=at_least(1), default=5, help="epochs without a smaller loss")
parser.add_argument("--batch-size", type=at_least(1), default=32, help="images of a batch")
parser.add_argument("--lr", type=at_least(0.0), default=1e-4, help="learning rate of the head")
parser.add_argument("--fine-tune-lr", type=at_least(0.0), default=1e-6, help="of the base; doubles")
parser.add_argument("--scratch-lr", type=at_least(0.0), default=1e-3, help="of all, if no weights")
parser.add_argument(
    "--dropout-probability", type=between(0.0, 1.0), default=0.5, help="before the head"
)
parser.add_argument("--weights", default="imagenet", help="imagenet, none, or a file on each node")
parser.add_argument("--images", type=absolute_path, help="your own, in place of Food-11")
parser.add_argument("--image-side", type=at_least(32), default=224, help="pixels")
parser.add_argument("--loader-processes", type=at_least(0), default=2, help="processes that read")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes order, crops and dropout")
parser.add_argument("--num-workers", type=at_least(1), default=1, help="processes that train")
parser.add_argument("--gpus-per-worker", type=at_least(0.0), default=1.0, help="may be part of one")
parser.add_argument("--cpus-per-worker", type=at_least(0.0), default=8.0, help="CPUs of a worker")


def train_func(config: dict[str, Any]) -> None:
    """Trains and tests, on each worker."""
    # Only workers need these: the driver starts ten seconds earlier, and with 300 MB less.
    import lightning as L  # noqa: N812 - Lightning's own short name
    import ray.train.lightning
    from lightning.pytorch.callbacks import EarlyStopping

    from trainyard.callbacks import EpochRecords, Finetuning, KeptModel
    from trainyard.data import food11
    from trainyard.models.mobilenet import Classifier
    from trainyard.tracking.runs import write_metrics

    data = food11.load(
        images=config["images"],
        side=config["image_side"],
        batch_size=config["batch_size"],
        seed=config["seed"],
        processes=config["loader_processes"],
    )
    model = Classifier(
        len(data.classes),
        weights=config["weights"],
        dropout=config["dropout_probability"],
        lr=config["lr"],
        scratch_lr=config["scratch_lr"],
        seed=config["seed"],
    )
    trainer = L.Trainer(
        max_epochs=config["total_epochs"],
        devices="auto",
        accelerator="auto",
        strategy=ray.train.lightning.RayDDPStrategy(find_unused_parameters=model.pretrained),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[
            EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min"),
            Finetuning(config["initial_epochs"], backbone_initial_lr=config["fine_tune_lr"]),
            EpochRecords(config["total_epochs"], generated=data.generated, write=write_metrics),
            ray.train.lightning.RayTrainReportCallback(),
            KeptModel(data.description),
        ],
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    trainer.fit(model, data.train, data.valid)
    trainer.test(model, data.test, verbose=False)


def main() -> None:
    """Runs the driver."""
    with recorded_run("food11/train_ray", parser, goals={"valid_acc": "max"}) as (run, config):
        resources = {"GPU": config["gpus_per_worker"], "CPU": config["cpus_per_worker"]}
        use_gpu = resources["GPU"] > 0
        trainer = TorchTrainer(
            train_func,
            train_loop_config=config,
            torch_config=torch_config(use_gpu=use_gpu),
            scaling_config=ScalingConfig(
                num_workers=config["num_workers"],
                use_gpu=use_gpu,
                resources_per_worker=resources,
            ),
            run_config=RunConfig(
                name=run.name,
                storage_path=run.storage,
                logging_config=LoggingConfig(log_level="WARNING"),
            ),
        )
        trainer.fit()


if __name__ == "__main__":
    main()
