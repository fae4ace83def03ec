"""A job for drills: one worker and short epochs, which waits in the middle of one for a fault.

    train submit tests/integration/infra/drilled.py -- --epochs 8 --go FILE

In the middle of epoch HELD it waits until FILE is there.
"""

# ruff: noqa: T201 - a job prints

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from training import checkpoints, ray_train
from training.run_folder import RUN_VARIABLE, STORAGE_VARIABLE
from training.runs import Run

STEPS = 10  # an epoch
STEP_S = 0.02
HELD = 3  # after so many epochs it waits
HELD_STEPS = 5  # and so many steps
MODEL = {"job": "drilled", "classes": ["a", "b"], "file": "checkpoint.pt", "prefix": ""}


def resources(arguments: list[str]) -> list[dict[str, float]]:
    """One CPU."""
    return [{"CPU": 1}]


def main() -> None:
    """Runs the job's driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--go", required=True)
    args = parser.parse_args()
    run = Run(os.environ[STORAGE_VARIABLE], os.environ[RUN_VARIABLE])
    run.start({"job": "drilled"} | vars(args))
    ray_train.connect()
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    ray_train.fit(
        TorchTrainer(
            train_worker,
            train_loop_config=vars(args) | {"storage": run.storage, "run": run.name},
            torch_config=ray_train.torch_config(use_gpu=False),
            scaling_config=ScalingConfig(num_workers=1, resources_per_worker=resources([])[0]),
            run_config=ray_train.run_config(run.storage, run.name, max_failures=3),
        )
    )


def train_worker(config: dict[str, Any]) -> None:
    """A layer learns to tell the sign of a sum."""
    import torch

    from training.epochs import seed_epoch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    run = Run(config["storage"], config["run"])
    history: list[dict[str, Any]] = []
    with checkpoints.restored() as folder:
        if folder is not None:
            state = checkpoints.load(folder / "checkpoint.pt")
            network.load_state_dict(state["model"])
            history = state["history"]
            where = f"{run.url}/{folder.name}"
            print(f"Restored from checkpoint {where}: {len(history)} epochs are done", flush=True)
            run.write_metrics(history)
    for epoch in range(len(history), config["epochs"]):
        seed_epoch(1, epoch, 0)
        total = 0.0
        for step in range(STEPS):
            while (epoch, step) == (HELD, HELD_STEPS) and not Path(config["go"]).exists():
                time.sleep(0.1)
            images = torch.randn(16, 8)
            labels = (images.sum(1) > 0).long()
            loss = torch.nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            time.sleep(STEP_S)
            print(f"progress: epoch {epoch + 1} batch {step + 1}/{STEPS}", flush=True)
        history.append({"epoch": epoch, "loss": total})
        folder = checkpoints.new_folder()
        state = {"model": network.state_dict(), "history": history}
        torch.save(state, folder / "checkpoint.pt")
        told = partial(run.write_metrics, list(history))
        checkpoints.report(history[-1], folder, MODEL, stored=told)
        print({"loss": total, "epoch": epoch}, flush=True)


if __name__ == "__main__":
    main()
