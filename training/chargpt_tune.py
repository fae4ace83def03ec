"""Searches learning rate, batch size and weight decay of chargpt with Ray Tune, by ASHA.

    train submit chargpt_tune --name search
    train submit chargpt_tune --name search-gpu -- --size full --epochs 20 --gpus-per-worker 0.5

Each trial is one process on any node with room. ASHA ends trials whose validation loss is worse
than half of those that got as far. Output, picture and resuming are those of food11/train_tune.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import torch
from ray import tune
from torch.utils.data import DataLoader

from trainyard import checkpoint_files, search
from trainyard.data.characters import Blocks, Corpus, RandomBatches
from trainyard.epochs import Totals, evaluate, seed_epoch
from trainyard.jobs import chargpt
from trainyard.models import char_gpt
from trainyard.models.char_gpt import SIZES, CharGpt
from trainyard.run_folder import CHECKPOINT_FILE
from trainyard.trials import Goal

JOB = "chargpt_tune"
ARGUMENTS = {
    "text": {
        "default": "shakespeare",
        "pattern": "shakespeare|python|/.+|https?://.+",
        "help": "shakespeare, python, the absolute path of a file on the nodes, or an address",
    },
    "text_sha256": {
        "default": "",
        "pattern": "|[0-9a-f]{64}",
        "help": "SHA-256; an address needs it",
    },
    "max_characters": {
        "default": None,
        "min": 1,
        "help": "characters of the text, for a quick try",
    },
    "size": {"default": "small", "choices": ["small", "full"]},
    "epochs": {"default": 8, "help": "most epochs of a trial; take 20 for the size full"},
    "steps_per_epoch": 250,
    "decay_steps": {
        "default": None,
        "min": 1,
        "help": "steps until the learning rate is lowest (default: by size 2000, 5000)",
    },
    "dropout": {
        "default": None,
        "min": 0.0,
        "max": 1.0,
        "help": "dropout (default: by size 0, 0.2)",
    },
    "seed": {"default": 1, "min": 0},
    "num_samples": 16,
    "gpus_per_worker": 0.0,
    "cpus_per_worker": 1.0,
}
RESOURCES = [(1, {"GPU": "gpus_per_worker", "CPU": "cpus_per_worker"})]  # of one trial


def train_func(config: dict[str, Any]) -> None:
    """Runs one trial."""
    logging.getLogger("ray").setLevel(logging.WARNING)  # it repeats the printed output
    size, seed = SIZES[config["size"]], config["seed"]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    corpus = load(config)
    batches = RandomBatches(
        corpus.train, size.block, config["batch_size"], config["steps_per_epoch"]
    )
    held_out = DataLoader(Blocks(corpus.valid, size.block), config["batch_size"])
    torch.manual_seed(seed)
    network = CharGpt(size, len(corpus.vocabulary), config["dropout"]).to(device)
    optimizer = char_gpt.optimizer(network, config["learning_rate"], config["weight_decay"])
    description = char_gpt.description(config["size"], corpus.vocabulary)
    description |= {"job": JOB, "file": CHECKPOINT_FILE}
    parts: dict[str, Any] = {"corpus": corpus, "model": network, "optimizer": optimizer}
    done = 0
    if (checkpoint := tune.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = checkpoint_files.load(Path(folder) / CHECKPOINT_FILE, device)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        done = state["done"]

    for epoch in range(done, config["epochs"]):
        seed_epoch(seed, epoch, rank=0)
        totals, step = Totals(device), epoch * config["steps_per_epoch"]
        chargpt.train_epoch(network, optimizer, batches, step, config, totals)
        train_acc, train_loss = totals.means()
        valid_acc, valid_loss = evaluate(network, held_out, device).means()
        metrics = {"epoch": epoch, "train_accuracy": train_acc, "train_loss": train_loss}
        metrics |= {"val_accuracy": valid_acc, "val_loss": valid_loss}
        state = {name: part.state_dict() for name, part in parts.items()}
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state | {"done": epoch + 1}, Path(folder) / CHECKPOINT_FILE)
            checkpoint_files.write_manifest(Path(folder), description)
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def load(config: dict[str, Any]) -> Corpus:
    """Return the text; trials write no sample of it.

    Raises:
        DataError: it cannot be trained on.
    """
    return chargpt.load(config | {"prompt": ""})


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    search.run(
        train_func,
        JOB,
        ARGUMENTS,
        RESOURCES,
        search.Space(
            {
                "learning_rate": tune.loguniform(1e-4, 1e-2),
                "batch_size": tune.choice([6, 12, 24, 48]),
                "weight_decay": tune.loguniform(1e-2, 1.0),
            },
            Goal({"learning_rate": ".3g", "batch_size": "d", "weight_decay": ".3g"}, "valid_loss"),
        ),
        given=given,
        check=load,
    )


if __name__ == "__main__":
    main()
