"""The classifier of train_ray.py; it resumes from its last checkpoint when a worker is lost.

    train submit food11/train_fault_tolerant --name tolerant

or like train_ray.py, by `ray job submit`. While it trains, stop the node that it trains on
(`docker stop ray-worker-0`, or `train drill worker-loss tolerant`): Ray Train starts the worker on
another node, which prints

    Restored on 172.19.0.5 from checkpoint: s3://ray/tolerant/checkpoint_000004-5d1c

and continues from there. Order, augmentation and dropout of an epoch depend only on seed and epoch,
so that the run ends like an uninterrupted one. So does a run that is submitted again under its
--name: arguments that are not given keep their last values, and more --total-epochs extend it.

Compared with train_ray.py it adds `max_failures`, the checkpoint that `trainer.fit` begins with,
and the callback that stores checkpoints, each with a manifest (trainyard/checkpoints.py).
"""

from __future__ import annotations

import argparse
import logging
from functools import partial
from pathlib import Path
from typing import Any

from ray.util import get_node_ip_address

from trainyard import checkpoints, job, progress, ray_train
from trainyard.options import at_least, between

JOB = "food11/train_fault_tolerant"
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
# With others of these the run would not be the one that was begun.
FIXED = ("weights", "image_side", "initial_epochs", "seed")


def train_func(session: job.Session) -> None:
    """Runs on each worker: trains and tests."""
    # The driver needs none of these, which take ten seconds and 300 MB.
    import lightning as L  # noqa: N812 - Lightning's own short name
    from lightning.pytorch.callbacks import EarlyStopping
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer

    from trainyard.callbacks import LIGHTNING_FILE, EpochRecords, Finetuning, ResumableCheckpoints
    from trainyard.data import food11
    from trainyard.models.mobilenet import ARCHITECTURE, PREFIX, Classifier

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
    stopping = EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min")
    records = EpochRecords(config["total_epochs"], generated=data.generated)

    def report(metrics: dict[str, Any], folder: Path | None) -> None:
        # Written once the checkpoint is stored: a resumed run's history is its checkpoint's.
        history = [dict(record) for record in records.history]
        # Some MB, stored in a moment: it is worth waiting for, as no epoch is trained twice then
        # but the one in hand.
        stored = partial(session.run.write_metrics, history)
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
    description = food11.description(config["image_side"]) | {
        "job": JOB,
        "architecture": ARCHITECTURE,
        "file": LIGHTNING_FILE,
        "prefix": PREFIX,
    }
    with checkpoints.restored() as folder:
        if folder is not None and session.rank == 0:
            node = get_node_ip_address()  # type: ignore[no-untyped-call]
            where = f"{session.run.url}/{folder.name}"
            progress.tell(progress.Restored(where, epochs=None, node=node))
        path = None if folder is None else folder / LIGHTNING_FILE
        trainer.fit(model, data.train, data.valid, ckpt_path=path, weights_only=True)
    trainer.test(model, data.test, verbose=False)
    checkpoints.report({"test_accuracy": records.history[-1]["test_acc"]})  # behind the last one
    if session.rank == 0:
        session.run.write_metrics(records.history)


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    with job.one_message():
        run, config = job.begin(JOB, parser, FIXED, given, epochs="total_epochs")
        earlier, history = run.config() or {}, run.metrics()
        if history and "test_acc" in history[-1] and config["epochs"] <= earlier["epochs"]:
            print(
                f"run {run.name} has finished: {len(history)} epochs are done, at most "
                f"{earlier['epochs']} were asked for; ask for more --total-epochs, or take another "
                f"--name: {run.url}"
            )
            return
        ray_train.connect()
        job.fit(train_func, run, config | {"max_failures": 2})
        run.end()
        job.say_completed(run)


if __name__ == "__main__":
    main()
