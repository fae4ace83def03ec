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
unsigned state is refused: trainyard/search/files.py.)

Each trial is one process, without Ray Train: Tune no longer accepts a TorchTrainer, and one in each
trial would add a process, for several workers that no trial here has.
"""

import argparse
from typing import Any

from ray import tune
from ray.tune import FailureConfig, RunConfig, TuneConfig, Tuner
from ray.tune.search import BasicVariantGenerator

from trainyard.options import absolute_path, at_least
from trainyard.search.recorded import recorded_search
from trainyard.search.state import ASHAScheduler  # Ray's, for resumed searches too
from trainyard.search.trials import Objective

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--initial-epochs", type=at_least(0), default=5, help="epochs of the head only")
parser.add_argument("--total-epochs", type=at_least(1), default=20, help="epochs in all")
parser.add_argument("--patience", type=at_least(1), default=5, help="epochs without a smaller loss")
parser.add_argument("--lr", type=at_least(0.0), default=1e-4, help="learning rate of the head")
parser.add_argument("--fine-tune-lr", type=at_least(0.0), default=1e-6, help="of the base; doubles")
parser.add_argument("--scratch-lr", type=at_least(0.0), default=1e-3, help="of all, if no weights")
parser.add_argument("--weights", default="imagenet", help="imagenet, none, or a file on each node")
parser.add_argument("--images", type=absolute_path, help="your own, in place of Food-11")
parser.add_argument("--image-side", type=at_least(32), default=224, help="pixels")
parser.add_argument("--loader-processes", type=at_least(0), default=2, help="processes that read")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes order, crops and dropout")
parser.add_argument("--num-samples", type=at_least(1), default=16, help="trials")
parser.add_argument("--gpus-per-trial", type=at_least(0.0), default=0.25, help="may be part of one")
parser.add_argument("--cpus-per-trial", type=at_least(0.0), default=2.0, help="CPUs of each trial")
# Columns of the table, and the layout of their values.
GOAL = Objective({"batch_size": "d", "dropout_probability": ".4f"}, "valid_acc", "max")


def train_func(config: dict[str, Any]) -> None:
    """Trains, in each trial."""
    # Only trials need these: the driver starts ten seconds earlier, and with 300 MB less.
    import lightning as L  # noqa: N812 - Lightning's own short name
    from lightning.pytorch.callbacks import EarlyStopping

    from trainyard.callbacks import Finetuning
    from trainyard.data import food11
    from trainyard.models.mobilenet import Classifier
    from trainyard.report.callbacks import SafeTuneReportCallback

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
        callbacks=[
            EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min"),
            Finetuning(config["initial_epochs"], backbone_initial_lr=config["fine_tune_lr"]),
            SafeTuneReportCallback(data),
        ],
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        trainer.fit(model, data.train, data.valid)
    else:
        with checkpoint.as_directory() as folder:
            path = f"{folder}/checkpoint.ckpt"
            trainer.fit(model, data.train, data.valid, ckpt_path=path, weights_only=True)


def main() -> None:
    """Runs the driver."""
    with recorded_search("food11/train_tune", parser, GOAL, epochs="total_epochs") as search:
        config = search.config
        resources = {"GPU": config["gpus_per_trial"], "CPU": config["cpus_per_trial"]}
        trainable = tune.with_resources(train_func, resources)
        if search.resumes:
            tuner = Tuner.restore(search.folder, trainable, storage_filesystem=search.files)
        else:
            tuner = Tuner(
                trainable,
                param_space=config
                | {
                    "batch_size": tune.choice([32, 64]),
                    "dropout_probability": tune.uniform(0.1, 0.8),
                },
                tune_config=TuneConfig(
                    metric="val_accuracy",
                    mode="max",
                    num_samples=config["num_samples"],
                    scheduler=ASHAScheduler(
                        max_t=config["total_epochs"], grace_period=1, reduction_factor=2
                    ),
                    search_alg=BasicVariantGenerator(random_state=config["seed"]),
                ),
                run_config=RunConfig(
                    name=search.name,
                    storage_path=search.storage_path,
                    storage_filesystem=search.files,
                    failure_config=FailureConfig(max_failures=1),
                    callbacks=search.callbacks,
                    verbose=0,
                ),
            )
        search.show(tuner.fit())


if __name__ == "__main__":
    main()
