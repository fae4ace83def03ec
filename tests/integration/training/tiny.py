"""A job that trains for seconds, on workers that fall over when they are told to.

    train submit tests/integration/training/tiny.py -- --epochs 6

Faults are files in the folder TINY_FAULTS, as `kill-<rank>-<step>`: the worker that comes to this
step of the run removes the file and does it to itself.

kill      SIGKILL
stop      SIGSTOP
native    HOLD_S in a call that leaves Python's lock to other threads, as PyTorch's are
"""

# ruff: noqa: T201 - a job prints

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from training import checkpoints, ray_train
from training.run_folder import RUN_VARIABLE, STORAGE_VARIABLE
from training.runs import Run

STEPS = 4  # an epoch
WORKERS = 2
BALLAST = 2_500_000  # numbers of 4 bytes: a checkpoint of 10 MB
HOLD_S = 15  # longer than the tests let a worker be silent
MODEL = {"job": "tiny", "classes": ["a", "b"], "file": "checkpoint.pt", "prefix": ""}


def resources(arguments: list[str]) -> list[dict[str, float]]:
    """One CPU for each worker."""
    return [{"CPU": 1}] * WORKERS


def main() -> None:
    """Runs the job's driver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--max-failures", type=int, default=3)
    args = parser.parse_args()
    run = Run(os.environ[STORAGE_VARIABLE], os.environ[RUN_VARIABLE])
    run.start({"job": "tiny"} | vars(args))
    ray_train.connect()
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    result = ray_train.fit(
        TorchTrainer(
            train_worker,
            train_loop_config=vars(args) | {"storage": run.storage, "run": run.name},
            torch_config=ray_train.torch_config(use_gpu=False),
            scaling_config=ScalingConfig(
                num_workers=WORKERS, resources_per_worker=resources([])[0]
            ),
            run_config=ray_train.run_config(run.storage, run.name, args.max_failures),
        )
    )
    if result.return_value:
        sys.exit(f"error: {result.return_value}")
    print(f"Training completed after {len(run.metrics())} epochs")


def train_worker(config: dict[str, Any]) -> str:
    """Restores, trains on and reports; the loss of every step is the history."""
    import torch
    from ray import train
    from ray.train.torch import prepare_model

    logging.getLogger().setLevel(logging.WARNING)  # Ray Train logs each report it gets
    rank = train.get_context().get_world_rank()
    network, optimizer = untrained()
    run = Run(config["storage"], config["run"]) if rank == 0 else None
    history: list[dict[str, Any]] = []
    try:
        with checkpoints.restored() as folder:
            if folder is not None:
                state = checkpoints.load(folder / "checkpoint.pt")
                network.load_state_dict(state["model"])
                optimizer.load_state_dict(state["optimizer"])
                history = state["history"]
                if run is not None:
                    print(f"Restored from checkpoint {folder.name}: {len(history)} epochs")
                    run.write_metrics(history)
    except checkpoints.CheckpointError as error:
        return str(error)
    model = prepare_model(network)
    for record in learn(model, optimizer, rank, range(len(history), config["epochs"])):
        history.append(record)
        if run is None:
            checkpoints.report(record)
            continue
        folder = checkpoints.new_folder()
        state = {
            "model": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "history": history,
            "ballast": torch.randn(BALLAST),
        }
        torch.save(state, folder / "checkpoint.pt")
        told = partial(run.write_metrics, list(history))
        checkpoints.report(record, folder, MODEL, stored=told)
        print(f"epoch {record['epoch'] + 1} done", flush=True)
    return ""


def untrained() -> tuple[Any, Any]:
    """Two layers and their optimizer, the same on all ranks."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    return network, torch.optim.Adam(network.parameters(), lr=1e-2)


def learn(model: Any, optimizer: Any, rank: int, epochs: range) -> Iterator[dict[str, Any]]:
    """Learns to tell the sign of a sum, together with the other rank; yields each epoch's losses.

    Nothing here is of Ray: calm.py does the same without it.
    """
    import torch
    from torch import distributed

    from training.epochs import seed_epoch

    for epoch in epochs:
        seed_epoch(1, epoch, rank)
        losses = []
        for step in range(epoch * STEPS, (epoch + 1) * STEPS):
            _fall_over(rank, step)
            images = torch.randn(16, 8)
            labels = (images.sum(1) > 0).long()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            distributed.all_reduce(total)
            losses.append(total.item())
        yield {"epoch": epoch, "loss": sum(losses), "losses": losses}


def _fall_over(rank: int, step: int) -> None:
    faults = Path(os.environ.get("TINY_FAULTS", "/nonexistent"))
    for kind in ("kill", "stop", "native"):
        fault = faults / f"{kind}-{rank}-{step}"
        if not fault.exists():
            continue
        fault.unlink()
        print(f"falls over: {fault.name}", flush=True)
        if kind == "native":
            ctypes.CDLL(None).sleep(HOLD_S)
        else:
            os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


if __name__ == "__main__":
    main()
