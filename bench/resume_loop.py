"""The loop that P10 times: steps of three layers with a checkpoint of 50 MB now and then.

Under Ray Train the worker kills itself once a checkpoint is stored and some steps are done since;
the next one prints its first step with its time, and ends. With a URL it is the least work for
going on: one process that imports torch, downloads a checkpoint and makes a step. Run as a file: it
imports nothing of bench.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WIDTH = 2048
LAYERS = 3
INTERVAL = 20  # steps from one checkpoint to the next
STEP_S = 0.1  # at least: a checkpoint is stored in less than an interval
STEPS_SINCE = 7  # the last checkpoint that is stored, before the worker is killed
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
    """Train until a kill, or a step after it."""
    import torch

    from trainyard.resume import checkpoint_files, checkpoints

    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with checkpoints.restore_newest() as folder:
        if folder is not None:
            state = checkpoint_files.load(folder / FILE)
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
            folder = checkpoints.new_folder()
            torch.save({"model": model.state_dict(), "steps": done}, folder / FILE)
            checkpoints.report({"step": done}, folder, {}, stored=partial(stored.append, done))


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
    arguments = parser.parse_args()
    if arguments.url:
        from_url(arguments.url)
    else:
        under_ray_train()
