"""The loop that P10 times: steps of three layers with a checkpoint of 50 MB now and then.

Under Ray Train the worker kills itself once a checkpoint is stored and some steps are done since;
the next one prints its first step with its time, and ends: in a job of a stack, or with Ray alone
(bench/ray_alone.py), whose checkpoints are in a folder. With a URL it is the least work for going
on: one process that imports torch, downloads a checkpoint and makes a step. As a job it imports
nothing of bench.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WIDTH = 2048
LAYERS = 3
INTERVAL = 40  # steps from one checkpoint to the next
STEP_S = 0.1  # at least: a checkpoint is stored in less than an interval
# The last checkpoint that is stored, before the worker is killed: longer than 2 s, after which Ray
# alone knows of it.
STEPS_SINCE = 27
FILE = "checkpoint.pt"


def network() -> torch.nn.Module:
    """Return layers whose weights are 4 bytes times WIDTH times WIDTH each."""
    from torch import nn

    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make one step of the optimizer."""
    import torch

    loss = model(torch.ones(8, WIDTH)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def tell(event: str, step: int) -> None:
    """Print what happened, and when; Ray passes a worker's lines on to its driver."""
    print(json.dumps({"event": event, "step": step, "at": time.time()}), flush=True)


def worker(_: dict[str, Any]) -> None:
    """Train in a job until a kill, or a step after it."""
    from trainyard.resume import checkpoints

    def report(folder: Path, done: int, stored: list[int]) -> None:
        checkpoints.report({"step": done}, folder, {}, stored=partial(stored.append, done))

    with checkpoints.restore_newest() as folder:
        train(folder, checkpoints.new_folder, report)


def worker_alone() -> None:
    """Train with Ray alone until a kill, or a step after it."""
    from ray.train import Checkpoint, get_checkpoint
    from ray.train import report as report_to_ray

    def report(folder: Path, done: int, stored: list[int]) -> None:
        report_to_ray({"step": done}, checkpoint=Checkpoint.from_directory(folder))
        stored.append(done)

    with nullcontext() if (found := get_checkpoint()) is None else found.as_directory() as folder:
        train(folder and Path(folder), lambda: Path(tempfile.mkdtemp()), report)


def train(
    restored: Path | None,
    new_folder: Callable[[], Path],
    report: Callable[[Path, int, list[int]], None],
) -> None:
    """Train until a kill, or make a step from a checkpoint.

    Args:
        restored: folder of the newest checkpoint, None without one.
        new_folder: makes a folder for a checkpoint.
        report: stores the checkpoint of a folder, of so many steps, and adds these to a list then.
    """
    import torch

    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if restored is not None:
        state = torch.load(restored / FILE, weights_only=True)
        model.load_state_dict(state["model"])
        step(model, optimizer)
        tell("resumed", state["steps"])
        return
    stored: list[int] = []
    for done in itertools.count(1):
        begun = time.monotonic()
        step(model, optimizer)
        if stored and STEPS_SINCE <= done - stored[-1] < INTERVAL:
            tell("killed", done)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(max(0.0, begun + STEP_S - time.monotonic()))
        if done % INTERVAL == 0:
            folder = new_folder()
            torch.save({"model": model.state_dict(), "steps": done}, folder / FILE)
            report(folder, done, stored)


def under_ray_train() -> None:
    """Train in a worker of Ray Train."""
    from trainyard import ray_train
    from trainyard.tracking.runs import Run

    ray_train.connect()
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    run = Run(os.environ["TRAINYARD_STORAGE_URL"], os.environ["TRAINYARD_RUN"])
    TorchTrainer(
        worker,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(resources_per_worker={"CPU": 1}),
        run_config=ray_train.run_config(run, 1),
    ).fit()


def from_url(url: str) -> None:
    """Make one step from a checkpoint at an address that needs no credentials."""
    import torch

    torch.set_num_threads(1)
    path = f"{FILE}.part"
    urllib.request.urlretrieve(url, path)  # noqa: S310 - of the benchmark
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    step(model, optimizer)
    tell("resumed", state["steps"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--url")
    parser.add_argument("--ray-alone", action="store_true")
    arguments = parser.parse_args()
    if arguments.url:
        from_url(arguments.url)
    elif arguments.ray_alone:
        from bench import ray_alone

        ray_alone.fit(worker_alone, max_failures=1)
    else:
        under_ray_train()
