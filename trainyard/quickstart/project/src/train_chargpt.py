"""Trains GPT-2 on the characters of a text, on the box of config/ray_config.yaml, or on a stack.

    python src/train_chargpt.py --name first
    python src/train_chargpt.py --name first --stack NAME
    python src/train_chargpt.py --name first --clean-trials

Under the same --name it resumes from its last checkpoint; --clean-trials starts over. Data are
data/train.bin and data/val.bin as nanoGPT's, made of the text if they are missing. At the end the
model, which is on this machine then, writes a few lines.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import config
import numpy as np
import ray.train
import torch
from trainyard.data import characters
from trainyard.quickstart import TorchTrainer, initialize_ray_with_syncer, one_message
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import get_device, prepare_model
from transformers import GPT2Config, GPT2LMHeadModel

STATE = "state.pt"
TRAIN, VALID, VOCABULARY = "train.bin", "val.bin", "vocabulary.json"
SAMPLE = 300  # characters


def prepare() -> str:
    """Writes the text as numbers, one for each character; returns all characters."""
    if not (config.DATA / TRAIN).exists():
        text = characters.load(config.TEXT, config.BLOCK)
        config.DATA.mkdir(exist_ok=True)
        (config.DATA / VOCABULARY).write_text(json.dumps(text.vocabulary))
        text.valid.tofile(config.DATA / VALID)
        text.train.tofile(config.DATA / TRAIN)
    return json.loads((config.DATA / VOCABULARY).read_text())


def network(characters: int) -> GPT2LMHeadModel:
    """The model, untrained."""
    sizes = {"n_layer": config.LAYERS, "n_head": config.HEADS, "n_embd": config.WIDTH}
    dropout = dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.DROPOUT)
    own = {"vocab_size": characters, "n_positions": config.BLOCK, "loss_type": "ForCausalLM"}
    tokens = dict.fromkeys(("bos_token_id", "eos_token_id"))  # GPT-2's own are beyond these
    return GPT2LMHeadModel(GPT2Config(**sizes, **dropout, **own, **tokens))


def batches(file: str, count: int, device: torch.device) -> Iterator[torch.Tensor]:
    """Yields batches of blocks from random places of a file."""
    ids = np.fromfile(config.DATA / file, np.uint16).astype(np.int64)
    if size := config.TRUNCATE_DATASET_TO_SIZE:
        ids, count = ids[: (size + 1) * config.BLOCK], max(1, min(count, size // config.BATCH))
    text = torch.from_numpy(ids).to(device)
    for _ in range(count):
        first = torch.randint(len(text) - config.BLOCK + 1, (config.BATCH, 1), device=device)
        yield text[first + torch.arange(config.BLOCK, device=device)]


def train_loop(settings: dict) -> None:
    """The worker's code: trains the epochs that are not done yet."""
    device = get_device()
    model = prepare_model(network(settings["characters"]).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.LEARNING_RATE, betas=(0.9, 0.99))
    first = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, STATE), map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1

    for epoch in range(first, config.EPOCHS):
        torch.manual_seed(epoch)
        model.train()
        for blocks in batches(TRAIN, config.STEPS, device):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = model(blocks, labels=blocks).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [model(blocks, labels=blocks).loss for blocks in batches(VALID, 20, device)]
        valid = torch.stack(losses).mean().item()
        print(f"epoch {epoch + 1}: train. loss {loss.item():.4f}, valid. loss {valid:.4f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, Path(folder, STATE))
            metrics = {"epoch": epoch, "loss": loss.item(), "valid_loss": valid}
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def sample(checkpoint: Path, vocabulary: str) -> str:
    """What a trained model writes."""
    model = network(len(vocabulary))
    state = torch.load(checkpoint / STATE, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    begun = torch.zeros((1, 1), dtype=torch.int64)
    count = min(SAMPLE, config.BLOCK - 1)
    ids = model.eval().generate(begun, do_sample=True, max_new_tokens=count, pad_token_id=0)
    return "".join(vocabulary[each] for each in ids[0])


def main() -> None:
    """Trains, and says where the results are."""
    parser = argparse.ArgumentParser(description="Train GPT-2 on the characters of a text.")
    parser.add_argument("--name", default="chargpt", help="name of the run (default: chargpt)")
    parser.add_argument("--clean-trials", action="store_true", help="remove the run's old results")
    parser.add_argument("--stack", help="stack that trains (default: TRAINYARD_STACK, or the box)")
    options = parser.parse_args()
    vocabulary = prepare()
    syncer = None
    if config.RUN_ON_RAY_CLUSTER:
        syncer = initialize_ray_with_syncer(
            config.PROJECT, config.PROJECT / "src", config.RAY_CONFIG, config.RESULTS, options.stack
        )
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={"characters": len(vocabulary)},
        scaling_config=ScalingConfig(use_gpu=not config.FORCE_CPU),
        run_config=RunConfig(name=options.name, checkpoint_config=CheckpointConfig(num_to_keep=2)),
    )
    result = trainer.fit(syncer, clean_trials=options.clean_trials)
    print(sample(result.checkpoint, vocabulary))
    print(f"valid. loss {result.metrics['valid_loss']:.4f}; checkpoint {result.checkpoint}")


if __name__ == "__main__":
    with one_message():
        main()
