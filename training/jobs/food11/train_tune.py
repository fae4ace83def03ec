"""Searches batch size and dropout of the classifier with Ray Tune, by ASHA.

    train submit food11/train_tune --name search
    train submit food11/train_tune --name search-4 -- --num-samples 4

or as train_ray.py, by `ray job submit`. It prints the sampled configurations first, as

    trial 00003: batch_size 64, dropout_probability 0.4127

for each epoch of a trial a line, and at the end the table of all trials and the best one. ASHA
ends trials that are worse than half of those that got as far. The picture of the trials is the
run's curves.png (`train show search --curves FILE`), metrics.jsonl has the best trial's epochs.

A trial that fails does not end the search. Submitted again under its --name, a search that was
cut off goes on where it was: trials that are done are not run again, others go on from their last
checkpoint. (What Tune needs for that it keeps pickled in the run's folder in the store; it is
signed with a key of the cluster, and what is not, is refused: training/search_files.py.)

What is new beside train_lightning.py: what is sampled, `tune.report` instead of the test, and the
driver. Each trial is one process that asks for its resources: Tune takes a TorchTrainer no more
(one in each trial would add a process a trial, for several workers that no trial here has).
"""

# ruff: noqa: PLC0415 - a job prints, and the client imports it without torch and Ray

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from training import options, ray_train

config: dict[str, Any] = {
    "initial_epochs": 5,  # of the head alone
    "total_epochs": 20,
    "patience": 5,  # epochs without a smaller validation loss
    "lr": 1e-4,  # of the head
    "fine_tune_lr": 1e-6,  # of the base at first; doubles each epoch up to the head's
    "scratch_lr": 1e-3,  # of the whole model, where it starts without weights
    "weights": "imagenet",  # or none, or a file that each node has
    "image_side": 224,  # pixels
    "loader_processes": 2,  # decode images beside training
    "seed": 1,
    "num_samples": 16,
}
scaling: dict[str, Any] = {"gpus_per_worker": 0.5, "cpus_per_worker": 4.0}


def train_func(config: dict[str, Any]) -> None:
    """What each trial runs."""
    import lightning as L  # noqa: N812 - Lightning's own short name
    from lightning.pytorch.callbacks import EarlyStopping
    from ray import tune

    from training.callbacks import LIGHTNING_FILE, Finetuning, ResumableCheckpoints
    from training.data import food11
    from training.models.mobilenet import Classifier

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

    def report(metrics: dict[str, Any], folder: Path | None) -> None:
        if folder is not None:
            metrics = metrics | {"generated": data.generated}
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


def parser() -> argparse.ArgumentParser:
    """The job's arguments."""
    return options.parser("train submit food11/train_tune --", config | scaling)


def resources(arguments: list[str]) -> list[dict[str, float]]:
    """What one trial asks for: as many run at once as there is room for."""
    return [options.bundle(options.parse(parser(), arguments))]


def main(arguments: list[str] | None = None) -> None:
    """Runs the job's driver."""
    run = ray_train.open_run("food11-tune")
    earlier = run.config() or {}
    asked = options.parse(parser(), arguments, earlier)
    asked |= {"job": "food11/train_tune", "epochs": asked["total_epochs"]}
    if other := options.differences(earlier, asked, ("job", *config)):
        sys.exit(
            f"error: search {run.name!r} was started otherwise ({other}) and cannot go on so: "
            "take another --name, or the same arguments"
        )
    # Nodes of one machine share Ray's folders: one that unpacks the job's code replaces this one's.
    os.chdir(tempfile.gettempdir())
    # A search that was cut off goes on from its stored state: at most a second behind, and what it
    # takes to store it.
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")
    ray_train.connect()
    from ray import tune
    from ray.tune.search import BasicVariantGenerator

    from training import search_state, signed, trials
    from training.objects import StorageError
    from training.search_files import SearchError, SearchFiles

    try:
        files = SearchFiles(run, signed.cluster_key())
        goes_on = files.search.take_up()
    except (signed.SignatureError, SearchError, StorageError) as error:
        sys.exit(f"error: {error}")
    run.start(asked)
    pruning = search_state.Pruning(run.url, run.name)
    _, folder = run.place  # without its s3://, as Tune wants it beside a file system
    trainable = tune.with_resources(train_func, options.bundle(asked))
    space = asked | {
        "batch_size": tune.choice([32, 64]),
        "dropout_probability": tune.uniform(0.1, 0.8),
    }
    if goes_on:
        tuner = tune.Tuner.restore(folder, trainable, storage_filesystem=files)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space=space,
            tune_config=tune.TuneConfig(
                metric="val_accuracy",
                mode="max",
                num_samples=asked["num_samples"],
                scheduler=search_state.Halving(
                    run.url, max_t=asked["total_epochs"], grace_period=1, reduction_factor=2
                ),
                search_alg=BasicVariantGenerator(random_state=asked["seed"]),
            ),
            run_config=tune.RunConfig(
                name=run.name,
                storage_path=str(Path(folder).parent),
                storage_filesystem=files,
                failure_config=tune.FailureConfig(max_failures=1),  # on a node that is lost
                callbacks=[trials.TrialLines(asked["total_epochs"]), pruning],
                verbose=0,
            ),
        )
    found = tuner.fit()
    pruning.prune()
    if fault := trials.finish(run, found):
        sys.exit(f"error: {fault}")


if __name__ == "__main__":
    main()
