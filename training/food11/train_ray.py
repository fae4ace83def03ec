"""The classifier of train_lightning.py with Ray Train: one worker or several, whole GPUs or parts.

    train submit food11/train_ray --name whole
    train submit food11/train_ray --name two -- --num-workers 2
    train submit food11/train_ray --name half -- --gpus-per-worker 0.5 --cpus-per-worker 4

or like the other scripts, `ray job submit ... -- python train_ray.py` without --entrypoint-num-gpus
and -cpus: the workers ask for their own resources. Its output is that of train_lightning.py.
Checkpoints, metrics and curves go to <storage>/<run>/ (trainyard/run_folder.py).

Compared with train_lightning.py it adds the scaling, a function for the workers around Lightning's
code, Ray's strategy, plugin and callback, and the driver that starts the workers. With several
workers the batch size is that of each worker.
"""

from __future__ import annotations

import argparse
import logging

from trainyard import job, ray_train
from trainyard.options import at_least, between

JOB = "food11/train_ray"
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument(
    "--initial-epochs",
    type=at_least(1),
    default=5,
    help="epochs of the head alone, before the base is trained too",
)
parser.add_argument("--total-epochs", type=at_least(1), default=20, help="epochs in all")
parser.add_argument(
    "--patience",
    type=at_least(1),
    default=5,
    help="epochs without a smaller validation loss",
)
parser.add_argument("--batch-size", type=at_least(1), default=32, help="images of a batch")
parser.add_argument("--lr", type=at_least(0.0), default=1e-4, help="learning rate of the head")
parser.add_argument(
    "--fine-tune-lr",
    type=at_least(0.0),
    default=1e-6,
    help="first learning rate of the base; it doubles each epoch up to the head's",
)
parser.add_argument(
    "--scratch-lr",
    type=at_least(0.0),
    default=1e-3,
    help="learning rate of the whole model, where it starts without weights",
)
parser.add_argument(
    "--dropout-probability",
    type=between(0.0, 1.0),
    default=0.5,
    help="probability of dropout before the last layer",
)
parser.add_argument(
    "--weights", default="imagenet", help="imagenet, none, or a file that each node has"
)
parser.add_argument("--image-side", type=at_least(1), default=224, help="pixels of an image's side")
parser.add_argument(
    "--loader-processes", type=at_least(0), default=2, help="processes that decode images"
)
parser.add_argument(
    "--seed", type=at_least(0), default=1, help="seed of the split, shuffling and dropout"
)
parser.add_argument("--num-workers", type=at_least(1), default=1, help="worker processes")
parser.add_argument(
    "--gpus-per-worker",
    type=at_least(0.0),
    default=1.0,
    help="GPUs of each worker, also a part of one",
)
parser.add_argument(
    "--cpus-per-worker", type=at_least(0.0), default=8.0, help="CPUs of each worker"
)


def train_func(session: job.Session) -> None:
    """Runs on each worker: trains and tests."""
    # The driver needs none of these, which take ten seconds and 300 MB.
    import lightning as L  # noqa: N812 - Lightning's own short name
    from lightning.pytorch.callbacks import EarlyStopping
    from ray.train.lightning import (
        RayDDPStrategy,
        RayLightningEnvironment,
        RayTrainReportCallback,
        prepare_trainer,
    )

    from trainyard.callbacks import EpochRecords, Finetuning
    from trainyard.data import food11
    from trainyard.models.mobilenet import Classifier

    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # it reports what is printed
    config = session.config

    def load() -> tuple[food11.Food11, Classifier]:
        data = food11.load(
            side=config["image_side"],
            batch_size=config["batch_size"],
            seed=config["seed"],
            processes=config["loader_processes"],
            rank=session.rank,
            world=session.world,
        )
        model = Classifier(
            len(food11.CLASSES),
            weights=config["weights"],
            dropout=config["dropout_probability"],
            lr=config["lr"],
            scratch_lr=config["scratch_lr"],
            seed=config["seed"],
        )
        return data, model

    data, model = session.together(load)
    callbacks: list[L.Callback] = [
        EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min"),
        EpochRecords(
            config["total_epochs"], generated=data.generated, write=session.run.write_metrics
        ),
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


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    with job.one_message():
        run, config = job.begin(JOB, parser, given=given, epochs="total_epochs")
        ray_train.connect()
        job.fit(train_func, run, config | {"max_failures": 0})
        run.end()
        job.say_completed(run)


if __name__ == "__main__":
    main()
