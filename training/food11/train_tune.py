"""Searches batch size and dropout of the classifier with Ray Tune, by ASHA.

    train submit food11/train_tune --name search
    train submit food11/train_tune --name search-4 -- --num-samples 4

or like train_ray.py, by `ray job submit`. It prints the sampled configurations first, as

    trial 00003: batch_size 64, dropout_probability 0.4127

a line for each epoch of a trial, and at the end the table of all trials and the best one. ASHA
ends trials that are worse than half of those that got as far. The picture of the trials is the
run's curves.png (`train show search --curves FILE`), metrics.jsonl has the best trial's epochs,
and its last checkpoint is the run's: `train pull` fetches it.

A failed trial does not end the search. Submitted again under its --name, an interrupted search
resumes: finished trials are not repeated, others go on from their last checkpoint. (Tune keeps its
state for that pickled in the run's folder in the store; it is signed with a key of the cluster, and
unsigned state is refused: trainyard/search_files.py.)

Compared with train_lightning.py it adds the sampled arguments, `tune.report` instead of the test,
and the driver. Each trial is one process that asks for its resources: Tune no longer accepts a
TorchTrainer (one in each trial would add a process, for several workers that no trial here has).
"""

from __future__ import annotations

import argparse
import logging
import shutil
from pathlib import Path
from typing import Any

from ray import tune

from trainyard import checkpoint_files, search
from trainyard.options import at_least
from trainyard.trials import Goal

JOB = "food11/train_tune"
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
    "--weights", default="imagenet", help="imagenet, none, or a file that each node has"
)
parser.add_argument("--image-side", type=at_least(1), default=224, help="pixels of an image's side")
parser.add_argument(
    "--loader-processes", type=at_least(0), default=2, help="processes that decode images"
)
parser.add_argument(
    "--seed", type=at_least(0), default=1, help="seed of the split, shuffling and dropout"
)
parser.add_argument("--num-samples", type=at_least(1), default=16, help="trials")
parser.add_argument(
    "--gpus-per-trial",
    type=at_least(0.0),
    default=0.5,
    help="GPUs of a trial, also a part of one",
)
parser.add_argument("--cpus-per-trial", type=at_least(0.0), default=4.0, help="CPUs of a trial")


def train_func(config: dict[str, Any]) -> None:
    """Runs one trial."""
    # The driver needs none of these, which take ten seconds and 300 MB.
    import lightning as L  # noqa: N812 - Lightning's own short name
    from lightning.pytorch.callbacks import EarlyStopping

    from trainyard.callbacks import LIGHTNING_FILE, Finetuning, ResumableCheckpoints
    from trainyard.data import food11
    from trainyard.models.mobilenet import ARCHITECTURE, PREFIX, Classifier

    for name in ("ray", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.WARNING)  # they report what is printed anyway
    data = food11.load(
        side=config["image_side"],
        batch_size=config["batch_size"],
        seed=config["seed"],
        processes=config["loader_processes"],
    )
    model = Classifier(
        len(food11.CLASSES),
        weights=config["weights"],
        dropout=config["dropout_probability"],
        lr=config["lr"],
        scratch_lr=config["scratch_lr"],
        seed=config["seed"],
    )

    description = food11.description(config["image_side"]) | {
        "job": JOB,
        "architecture": ARCHITECTURE,
        "file": LIGHTNING_FILE,
        "prefix": PREFIX,
    }

    def report(metrics: dict[str, Any], folder: Path | None) -> None:
        if folder is not None:
            metrics = metrics | {"generated": data.generated}
            checkpoint_files.write_manifest(folder, description)
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))
            shutil.rmtree(folder, ignore_errors=True)

    stopping = EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min")
    callbacks: list[L.Callback] = [stopping, ResumableCheckpoints(data.sampler, stopping, report)]
    if model.pretrained:
        callbacks.append(
            Finetuning(config["initial_epochs"], backbone_initial_lr=config["fine_tune_lr"])
        )
    trainer = L.Trainer(
        max_epochs=config["total_epochs"],
        devices="auto",
        accelerator="auto",
        callbacks=callbacks,
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        trainer.fit(model, data.train, data.valid)
        return
    with checkpoint.as_directory() as folder:
        path = Path(folder) / LIGHTNING_FILE
        trainer.fit(model, data.train, data.valid, ckpt_path=path, weights_only=True)


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    search.run(
        train_func,
        JOB,
        parser,
        search.Space(
            {"batch_size": tune.choice([32, 64]), "dropout_probability": tune.uniform(0.1, 0.8)},
            Goal({"batch_size": "d", "dropout_probability": ".4f"}),
        ),
        epochs="total_epochs",
        given=given,
    )


if __name__ == "__main__":
    main()
