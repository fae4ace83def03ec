"""Trains GPT-2 on the characters of a text with Ray Train: one worker or many, on CPUs or GPUs.

    train submit chargpt --name plays
    train submit chargpt --name plays-full -- --size full --epochs 20

Model and defaults are nanoGPT's (trainyard/models/char_gpt.py). After each epoch it stores a
checkpoint and prints

    Epoch: 001/008 | Train. Loss: 2.7712 | Valid. Loss: 2.4459 | 12,300 tokens/s

and at the end the run's sample.txt. Submitted again under its --name it resumes.
"""

import argparse
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.train.torch import prepare_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.data import DataLoader

import trainyard
from trainyard import job
from trainyard.data import characters
from trainyard.data.characters import Blocks, Corpus, RandomBatches
from trainyard.epochs import Totals, evaluate, seed_epoch, share
from trainyard.models import char_gpt
from trainyard.models.char_gpt import SIZES, CharGpt, description, sample
from trainyard.options import at_least, between, matching, worker_count
from trainyard.resume import checkpoint_files

JOB = "chargpt"
SAMPLE = "sample.txt"  # in the run's folder
MOST_CHARACTERS = 5_000  # of a request's text
ANSWER_CHARACTERS = 500
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
parser.add_argument("--epochs", type=at_least(1), default=8, help="epochs in all; for full take 20")
parser.add_argument("--steps-per-epoch", type=at_least(1), default=250, help="batches per epoch")
parser.add_argument("--decay-steps", type=at_least(1), help="steps; None: 2000, for full 5000")
parser.add_argument("--batch-size", type=at_least(1), help="all workers' blocks; None: 12, full 64")
parser.add_argument("--learning-rate", type=at_least(0.0), default=1e-3, help="highest rate")
parser.add_argument("--weight-decay", type=at_least(0.0), default=0.1, help="decay of AdamW")
parser.add_argument("--dropout", type=between(0.0, 1.0), help="probability; None: 0, for full 0.2")
parser.add_argument("--prompt", default="", help="beginning of the sample")
parser.add_argument("--sample-characters", type=at_least(0), default=500, help="sample's length")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes weights and batches")
parser.add_argument("--workers", type=worker_count, default=1, help="processes that train")
parser.add_argument("--cpus-per-worker", type=at_least(1), default=1, help="CPUs of each worker")
parser.add_argument(
    "--cpu", action=argparse.BooleanOptionalAction, default=False, help="CPUs, also on GPU nodes"
)
parser.add_argument("--max-failures", type=at_least(0), default=3, help="restarts of lost workers")
# With another text or split, a resumed model might be tested on its training data.
FIXED = ("text", "max_characters", "size", "steps_per_epoch", "seed")


def train_worker(session: job.Session) -> None:
    """Runs on each worker: the remaining epochs."""
    config, rank, world, device = session.config, session.rank, session.world, session.device
    seed, size = config["seed"], SIZES[config["size"]]
    corpus = session.together(lambda: corpus_of(config))
    per_worker = max(1, (config["batch_size"] or size.batch_size) // world)
    batches = RandomBatches(corpus.train, size.block, per_worker, config["steps_per_epoch"])
    held_out = DataLoader(share(Blocks(corpus.valid, size.block), rank, world), per_worker)
    network, optimizer = build(corpus, config, device)
    parts: dict[str, job.Part] = {"corpus": corpus, "model": network, "optimizer": optimizer}
    session.together(lambda: session.restore(**parts))
    model = prepare_model(network)

    for epoch in session.epochs_left():
        seed_epoch(seed, epoch, rank)
        began = time.monotonic()
        totals = Totals(device)
        step = epoch * config["steps_per_epoch"] + session.batches_done
        left = session.epoch_batches(batches, epoch, totals)
        train_epoch(model, optimizer, enumerate(left, step), config, totals)
        train_acc, train_loss = totals.of_all_workers()
        tokens_per_s = totals.sums[2].item() / (time.monotonic() - began)
        measured = evaluate(network, session.measured_batches(held_out), device)
        valid_acc, valid_loss = measured.of_all_workers()
        record = {"loss": train_loss, "epoch": epoch, "train_acc": train_acc}
        record |= {"valid_acc": valid_acc, "valid_loss": valid_loss}
        # Before the last checkpoint: a run whose epochs are all done has its sample.
        if epoch + 1 == config["epochs"] and rank == 0:
            text = sample(network, corpus, config["prompt"], config["sample_characters"], seed)
            session.run.write(SAMPLE, text.encode())
        session.report(record, description(config["size"], corpus.vocabulary, JOB), **parts)
        if rank == 0:
            print(
                f"Epoch: {epoch + 1:03d}/{config['epochs']:03d} | Train. Loss: {train_loss:.4f} | "
                f"Valid. Loss: {valid_loss:.4f} | {tokens_per_s:,.0f} tokens/s",
                flush=True,
            )


def corpus_of(config: job.Config) -> Corpus:
    """Return the text; a JobError if it cannot be trained on or lacks the prompt's characters."""
    block, most = SIZES[config["size"]].block, config["max_characters"]
    corpus = characters.load(config["text"], block, config["text_sha256"], most)
    corpus.encode(config.get("prompt", ""))
    return corpus


def build(corpus: Corpus, config: job.Config, device: torch.device) -> tuple[CharGpt, Optimizer]:
    """Return an untrained model and its optimizer."""
    torch.manual_seed(config["seed"])
    network = CharGpt(SIZES[config["size"]], len(corpus.vocabulary), config["dropout"]).to(device)
    return network, char_gpt.optimizer(network, config["learning_rate"], config["weight_decay"])


def train_epoch(
    model: nn.Module, optimizer: Optimizer, steps: enumerate[Any], config: job.Config, sums: Totals
) -> None:
    """Trains one epoch of batches and their numbers in the run, which determine the rate."""
    model.train()
    device = next(model.parameters()).device
    decay_steps = config["decay_steps"] or SIZES[config["size"]].steps
    for step, batch in steps:
        char_gpt.set_rate(optimizer, step, config["learning_rate"], decay_steps)
        ids, following = (part.to(device) for part in batch)
        logits = model(ids)
        loss = cross_entropy(logits, following)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), char_gpt.MOST_NORM)
        optimizer.step()
        sums.add(logits, following, loss)


def load(folder: Path) -> tuple[CharGpt, str]:
    """Return the network of a checkpoint and its vocabulary, for `train serve`."""
    network: Any = trainyard.load(folder)
    return network, "".join(checkpoint_files.model(folder)["classes"])


def predict(inputs: Any, model: tuple[CharGpt, str]) -> Iterator[str]:
    """Continues a text, piece by piece."""
    network, vocabulary = model
    if not isinstance(inputs, str) or len(inputs) > MOST_CHARACTERS:
        what = f"{len(inputs):,} characters" if isinstance(inputs, str) else "no text"
        raise job.JobError(f"the request has {what}: send a text, at most {MOST_CHARACTERS:,} long")
    nothing = np.zeros(0, np.uint16)
    begun = Corpus(vocabulary, "", nothing, nothing).encode(inputs or vocabulary[0])
    for number in network.written(begun, ANSWER_CHARACTERS, secrets.randbits(32)):
        yield vocabulary[number]


def main(given: list[str] | None = None) -> None:
    """Runs the job's driver; `given` replaces the arguments of the command line."""
    run = job.run(train_worker, JOB, parser, FIXED, given, {"valid_loss": "min"})
    if (text := run.read(SAMPLE)) is not None:  # none if an interrupted run now has fewer epochs
        print(f"A sample, as in {run.url}/{SAMPLE}:\n{text.decode()}")


if __name__ == "__main__":
    main()
