"""Trains a small network on scikit-learn's digits, on the box of config/ray_config.yaml.

    python src/train_digits.py --name first
    python src/train_digits.py --name first --clean-trials

Under the same --name it goes on from its last checkpoint; --clean-trials starts over.
"""

import argparse
import tempfile
from pathlib import Path

import config
import ray.train
import torch
from trainyard.quickstart import TorchTrainer, initialize_ray_with_syncer, one_message
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import get_device, prepare_model
from sklearn.datasets import load_digits
from torch import nn

STATE = "state.pt"


def train_loop(settings: dict) -> None:
    """The worker's code: trains the epochs that are not done yet."""
    pixels, digits = load_digits(return_X_y=True)
    size = settings["examples"] or len(pixels)
    device = get_device()
    x = torch.tensor(pixels[:size] / 16, dtype=torch.float32, device=device)
    y = torch.tensor(digits[:size], device=device)

    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = prepare_model(network.to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    first = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, STATE), map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1

    for epoch in range(first, settings["epochs"]):
        for batch in torch.randperm(size, device=device).split(32):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = (model(x).argmax(1) == y).float().mean().item()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}, training acc. {accuracy:.2%}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, Path(folder, STATE))
            metrics = {"epoch": epoch, "loss": loss.item(), "accuracy": accuracy}
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main() -> None:
    """Trains, and says where the results are."""
    parser = argparse.ArgumentParser(description="Train on scikit-learn's digits.")
    parser.add_argument("--name", default="digits", help="name of the run (default: digits)")
    parser.add_argument("--clean-trials", action="store_true", help="remove the run's old results")
    options = parser.parse_args()
    syncer = None
    if config.RUN_ON_RAY_CLUSTER:
        syncer = initialize_ray_with_syncer(
            config.PROJECT, config.PROJECT / "src", config.RAY_CONFIG, config.RESULTS
        )
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={
            "epochs": config.EPOCHS,
            "learning_rate": config.LEARNING_RATE,
            "examples": config.TRUNCATE_DATASET_TO_SIZE,
        },
        scaling_config=ScalingConfig(use_gpu=config.GPUS > 0 and not config.FORCE_CPU),
        run_config=RunConfig(name=options.name, checkpoint_config=CheckpointConfig(num_to_keep=2)),
    )
    result = trainer.fit(syncer, clean_trials=options.clean_trials)
    print(f"accuracy {result.metrics['accuracy']:.2%}; checkpoint {result.checkpoint}")


if __name__ == "__main__":
    with one_message():
        main()
