"""Trains GPT-2 on the characters of a text with Ray Train: one worker or many, on CPUs or GPUs.

    train submit chargpt --name plays
    train submit chargpt --name plays-full -- --size full --epochs 20 --use-gpu
    train submit chargpt --name quick -- --text python --epochs 1 --steps-per-epoch 20

The model is nanoGPT's (models/char_gpt.py), the texts are in data/characters.py. After each epoch
the held-out text is measured and a checkpoint is stored. It prints

    Epoch: 001/008 | Train. Loss: 2.7712 | Valid. Loss: 2.4459 | 12,300 tokens/s

and at the end the run's sample.txt. Submitted again under its --name it resumes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch
from ray.train.torch import prepare_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from trainyard import job
from trainyard.data import characters
from trainyard.data.characters import Blocks, Corpus, RandomBatches
from trainyard.epochs import Totals, evaluate, seed_epoch, share
from trainyard.models import char_gpt
from trainyard.models.char_gpt import SIZES, CharGpt
from trainyard.run_folder import CHECKPOINT_FILE

JOB = "chargpt"
SAMPLE = "sample.txt"  # in the run's folder
ARGUMENTS = {  # the defaults are nanoGPT's
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
    "epochs": {"default": 8, "help": "epochs; take 20 for the size full"},
    "steps_per_epoch": 250,
    "decay_steps": {
        "default": None,
        "min": 1,
        "help": "steps until the learning rate is lowest (default: by size 2000, 5000)",
    },
    "batch_size": {
        "default": None,
        "min": 1,
        "help": "batch size of all workers together (default: by size 12, 64)",
    },
    "learning_rate": {"default": 1e-3, "help": "highest learning rate of AdamW"},
    "weight_decay": 0.1,
    "dropout": {
        "default": None,
        "min": 0.0,
        "max": 1.0,
        "help": "dropout (default: by size 0, 0.2)",
    },
    "prompt": {"default": "", "help": "beginning of the sample"},
    "sample_characters": {"default": 500, "min": 0},
    "seed": {"default": 1, "min": 0},
    "workers": 1,
    "cpus_per_worker": 1,
    "use_gpu": {"default": False, "help": "one GPU for each worker; --no-use-gpu: on CPUs"},
    "max_failures": {"default": 3, "min": 0, "help": "restarts after lost workers"},
}
RESOURCES = [("workers", {"CPU": "cpus_per_worker", "GPU": "use_gpu"})]
# With another text or split, a resumed model might be tested on its training data.
FIXED = ("text", "max_characters", "size", "steps_per_epoch", "seed")


def train_worker(session: job.Session) -> None:
    """Runs on each worker: the remaining epochs."""
    config, rank, world, device = session.config, session.rank, session.world, session.device
    seed, size = config["seed"], SIZES[config["size"]]
    corpus = session.together(lambda: load(config))
    per_worker = max(1, (config["batch_size"] or size.batch_size) // world)
    batches = RandomBatches(corpus.train, size.block, per_worker, config["steps_per_epoch"])
    held_out = DataLoader(share(Blocks(corpus.valid, size.block), rank, world), per_worker)

    torch.manual_seed(seed)
    network = CharGpt(size, len(corpus.vocabulary), config["dropout"]).to(device)
    optimizer = char_gpt.optimizer(network, config["learning_rate"], config["weight_decay"])
    session.together(lambda: session.restore(corpus=corpus, model=network, optimizer=optimizer))
    model = prepare_model(network)
    description = char_gpt.description(config["size"], corpus.vocabulary)
    description |= {"job": JOB, "file": CHECKPOINT_FILE}

    for epoch in session.epochs_left():
        seed_epoch(seed, epoch, rank)
        began = time.monotonic()
        totals = Totals(device)
        step = epoch * config["steps_per_epoch"] + session.batches_done
        left = session.epoch_batches(batches, epoch, totals)
        train_epoch(model, optimizer, left, step, config, totals)
        train_acc, train_loss = totals.of_all_workers()
        tokens_per_s = totals.sums[2].item() / (time.monotonic() - began)
        measured = evaluate(network, session.measured_batches(held_out), device)
        valid_acc, valid_loss = measured.of_all_workers()
        record = {"loss": train_loss, "epoch": epoch, "train_acc": train_acc}
        record |= {"valid_acc": valid_acc, "valid_loss": valid_loss}
        # Before the last checkpoint: a run whose epochs are all done has its sample.
        if epoch + 1 == config["epochs"] and rank == 0:
            session.run.write(SAMPLE, sample(network, corpus, config).encode())
        session.report(record, description, corpus=corpus, model=network, optimizer=optimizer)
        if rank == 0:
            print({"loss": train_loss, "epoch": epoch})
            print(
                f"Epoch: {epoch + 1:03d}/{config['epochs']:03d} | Train. Loss: {train_loss:.4f} | "
                f"Valid. Loss: {valid_loss:.4f} | {tokens_per_s:,.0f} tokens/s",
                flush=True,
            )


def load(config: job.Config) -> Corpus:
    """Return the text; a DataError if it cannot be trained on or lacks the prompt's characters."""
    block, limit = SIZES[config["size"]].block, config["max_characters"]
    corpus = characters.load(config["text"], block, config["text_sha256"], limit)
    corpus.encode(config["prompt"])
    return corpus


def train_epoch(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterable[Any],
    first_step: int,
    config: job.Config,
    totals: Totals,
) -> None:
    """Trains one epoch; its learning rate depends on the run's earlier steps."""
    model.train()
    device = next(model.parameters()).device
    decay_steps = config["decay_steps"] or SIZES[config["size"]].steps
    for step, batch in enumerate(batches, first_step):
        char_gpt.set_rate(optimizer, step, config["learning_rate"], decay_steps)
        ids, following = (part.to(device) for part in batch)
        logits = model(ids)
        loss = cross_entropy(logits, following)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), char_gpt.MOST_NORM)
        optimizer.step()
        totals.add(logits, following, loss)


def sample(network: CharGpt, corpus: Corpus, config: job.Config) -> str:
    """Return the model's text, after the prompt or the first character of the vocabulary."""
    begun = corpus.encode(config["prompt"] or corpus.vocabulary[0])
    return corpus.decode(network.sample(begun, config["sample_characters"], config["seed"]))


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    run = job.run(train_worker, JOB, ARGUMENTS, RESOURCES, FIXED, given)
    if (text := run.read(SAMPLE)) is not None:  # none if an interrupted run now has fewer epochs
        print(f"A sample, as in {run.url}/{SAMPLE}:\n{text.decode()}")


if __name__ == "__main__":
    main()
