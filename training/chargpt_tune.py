"""Searches learning rate, batch size and weight decay of chargpt with Ray Tune, by ASHA.

    train submit chargpt_tune --name search
    train submit chargpt_tune --name search-gpu -- --size full --epochs 20

Each trial is one process on any node with room. ASHA ends trials whose validation loss is worse
than half of those that got as far. Output, picture and resuming are those of food11/train_tune.
"""

import argparse
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune import FailureConfig, RunConfig, TuneConfig, Tuner
from ray.tune.search import BasicVariantGenerator
from torch.utils.data import DataLoader

from trainyard.data.characters import Blocks, RandomBatches
from trainyard.epochs import Totals, evaluate, seed_epoch
from trainyard.jobs import chargpt
from trainyard.models import char_gpt
from trainyard.models.char_gpt import SIZES
from trainyard.options import at_least, between, matching
from trainyard.resume import checkpoint_files
from trainyard.search.recorded import recorded_search
from trainyard.search.state import ASHAScheduler  # Ray's, for resumed searches too
from trainyard.search.trials import Objective
from trainyard.tracking.run_folder import CHECKPOINT_FILE

JOB = "chargpt_tune"
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument(
    "--text",
    type=matching("shakespeare|python|/.+|https?://.+", "shakespeare, python, /PATH or an address"),
    default="shakespeare",
    help="shakespeare, python, the absolute path of a file on the nodes, or an address",
)
parser.add_argument(
    "--text-sha256", type=matching("|[0-9a-f]{64}", "a SHA-256"), default="", help="for an address"
)
parser.add_argument("--max-characters", type=at_least(1), help="characters to read; None: all")
parser.add_argument("--size", choices=["small", "full"], default="small", help="full needs a GPU")
parser.add_argument("--epochs", type=at_least(1), default=8, help="most epochs of a trial")
parser.add_argument("--steps-per-epoch", type=at_least(1), default=250, help="batches per epoch")
parser.add_argument("--decay-steps", type=at_least(1), help="steps; None: 2000, for full 5000")
parser.add_argument("--dropout", type=between(0.0, 1.0), help="probability; None: 0, for full 0.2")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes weights and batches")
parser.add_argument("--num-samples", type=at_least(1), default=16, help="trials")
parser.add_argument(
    "--gpus-per-trial", type=at_least(0.0), default=0.5, help="where nodes have GPUs"
)
parser.add_argument("--cpus-per-trial", type=at_least(0.0), default=1.0, help="CPUs of each trial")
parser.add_argument(
    "--cpu", action=argparse.BooleanOptionalAction, default=False, help="CPUs, also on GPU nodes"
)
# Columns of the table with the layout of their values, and the figure that is best when least.
GOAL = Objective(
    {"learning_rate": ".3g", "batch_size": "d", "weight_decay": ".3g"}, "valid_loss", "min"
)


def load(folder: Path) -> tuple[char_gpt.CharGpt, str]:
    """Return the network of a checkpoint and its vocabulary, for `train serve`."""
    return chargpt.load(folder)


def predict(inputs: Any, model: tuple[char_gpt.CharGpt, str]) -> Iterator[str]:
    """Continues a text, piece by piece."""
    return chargpt.predict(inputs, model)


def train_func(config: dict[str, Any]) -> None:
    """Runs one trial."""
    logging.getLogger("ray").setLevel(logging.WARNING)  # it repeats the printed output
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    corpus, block = chargpt.corpus_of(config), SIZES[config["size"]].block
    batches = RandomBatches(corpus.train, block, config["batch_size"], config["steps_per_epoch"])
    held_out = DataLoader(Blocks(corpus.valid, block), config["batch_size"])
    network, optimizer = chargpt.build(corpus, config, device)
    parts: dict[str, Any] = {"corpus": corpus, "model": network, "optimizer": optimizer}
    description = char_gpt.description(config["size"], corpus.vocabulary, JOB)
    done = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = checkpoint_files.load(Path(folder) / CHECKPOINT_FILE, device)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        done = state["done"]

    for epoch in range(done, config["epochs"]):
        seed_epoch(config["seed"], epoch, rank=0)
        totals = Totals(device)
        steps = enumerate(batches, epoch * config["steps_per_epoch"])
        chargpt.train_epoch(network, optimizer, steps, config, totals)
        train_acc, train_loss = totals.means()
        valid_acc, valid_loss = evaluate(network, held_out, device).means()
        metrics = {"epoch": epoch, "train_accuracy": train_acc, "train_loss": train_loss}
        metrics |= {"val_accuracy": valid_acc, "val_loss": valid_loss}
        state = {name: part.state_dict() for name, part in parts.items()}
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state | {"done": epoch + 1}, Path(folder) / CHECKPOINT_FILE)
            checkpoint_files.write_manifest(Path(folder), description)
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def main() -> None:
    """Runs the driver."""
    with recorded_search(JOB, parser, GOAL, check=chargpt.corpus_of) as search:
        config = search.config
        trainable = tune.with_resources(train_func, search.resources)
        if search.resumes:
            tuner = Tuner.restore(search.folder, trainable, storage_filesystem=search.files)
        else:
            tuner = Tuner(
                trainable,
                param_space=config
                | {
                    "learning_rate": tune.loguniform(1e-4, 1e-2),
                    "batch_size": tune.choice([6, 12, 24, 48]),
                    "weight_decay": tune.loguniform(1e-2, 1.0),
                },
                tune_config=TuneConfig(
                    metric="val_loss",
                    mode="min",
                    num_samples=config["num_samples"],
                    scheduler=ASHAScheduler(
                        max_t=config["epochs"], grace_period=1, reduction_factor=2
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
