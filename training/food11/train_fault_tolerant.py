"""The classifier of train_ray.py; it resumes from its last checkpoint when a worker is lost.

    train submit food11/train_fault_tolerant --name tolerant

or like train_ray.py, by `ray job submit`. While it trains, stop the node that it trains on
(`docker stop ray-worker-0`, or `train drill worker-loss tolerant`): Ray Train starts the worker on
another node, which prints

    Restored on 172.19.0.5 from checkpoint: s3://ray/tolerant/checkpoint_000004-5d1c

and continues from there. Order, augmentation and dropout of an epoch depend only on seed and epoch,
so that the run ends like an uninterrupted one. So does a run that is submitted again under its
--name: arguments that are not given keep their last values, and more --total-epochs extend it.
"""

import argparse
from typing import Any

from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from trainyard.counted_gpus import torch_config
from trainyard.job import recorded_run
from trainyard.options import absolute_path, at_least, between
from trainyard.resume.lost_workers import LostWorkers

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
# With others of these, a resumed run would not be the one that was begun.
GOALS = {"valid_acc": "max"}
FIXED = ("weights", "images", "image_side", "initial_epochs", "seed")


def train_func(config: dict[str, Any]) -> None:
    """Trains and tests, on each worker."""
    # Only workers need these: the driver starts ten seconds earlier, and with 300 MB less.
    import lightning as L  # noqa: N812 - Lightning's own short name
    import ray.train.lightning
    from lightning.pytorch.callbacks import EarlyStopping

    from trainyard.callbacks import EpochRecords, Finetuning
    from trainyard.data import food11
    from trainyard.models.mobilenet import Classifier
    from trainyard.report.callbacks import SafeReportCallback
    from trainyard.resume.checkpoints import get_checkpoint  # Ray's, for checked ones

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
    records = EpochRecords(config["total_epochs"], generated=data.generated)
    trainer = L.Trainer(
        max_epochs=config["total_epochs"],
        devices="auto",
        accelerator="auto",
        strategy=ray.train.lightning.RayDDPStrategy(find_unused_parameters=model.pretrained),
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[
            EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min"),
            Finetuning(config["initial_epochs"], backbone_initial_lr=config["fine_tune_lr"]),
            records,
            SafeReportCallback(data, records),
        ],
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer = ray.train.lightning.prepare_trainer(trainer)
    checkpoint = get_checkpoint()
    if checkpoint is None:
        trainer.fit(model, data.train, data.valid)
    else:
        with checkpoint.as_directory() as folder:
            path = f"{folder}/checkpoint.ckpt"
            trainer.fit(model, data.train, data.valid, ckpt_path=path, weights_only=True)
    trainer.test(model, data.test, verbose=False)


def main() -> None:
    """Runs the driver."""
    with recorded_run("food11/train_fault_tolerant", parser, FIXED, GOALS) as (run, config):
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
                storage_path=run.storage_path,
                storage_filesystem=run.files,  # the store may be away for a while
                logging_config=LoggingConfig(log_level="WARNING"),
                failure_config=FailureConfig(max_failures=2),
                callbacks=[LostWorkers(max_failures=2)],
            ),
        )
        trainer.fit()


if __name__ == "__main__":
    main()
