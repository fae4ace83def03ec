"""A training that is killed twenty times, by SIGKILL, in steps and while a checkpoint is stored.

Real processes, one after the other, with the checkpoints that jobs use; what Ray Train does
between them, start another, is done here. tests/integration/training/test_faults.py has three
such kills under a real Ray Train.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import secrets
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train.collective  # noqa: F401 - imported once, for all of the processes
import torch

from tests.unit.trainyard.test_checkpoints import MODEL, Worker
from trainyard import checkpoint_files, checkpoints, objects
from trainyard.epochs import seed_epoch

ROOT = Path(__file__).resolve().parents[3]
EPOCHS = 16
STEPS = 3
KILLS = 20
# Where in an epoch: before a step, or once its checkpoint's weights or manifest are half stored.
PLACES = (*range(STEPS), "checkpoint.pt", checkpoint_files.MANIFEST)
Place = tuple[int, int | str]


def train(folder: Path, kill: Place | None) -> None:
    """Trains to the end, or to the place where it kills itself."""
    torch.set_num_threads(1)
    worker = Worker(folder, 0, pytest.MonkeyPatch())
    replace = objects.FolderStore._replace
    storing = SimpleNamespace(epoch=0)

    def half(self: Any, verb: str, name: str, source: Any) -> objects.Digest:
        if kill == (storing.epoch, name.rpartition("/")[2]):
            path = self._path / name
            path.parent.mkdir(exist_ok=True)
            path.with_name(f".{path.name}.part").write_bytes(source.read(10))
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, verb, name, source)

    pytest.MonkeyPatch().setattr(objects.FolderStore, "_replace", half)
    # The kernel outlives the process, and a busy disk would take most of the time.
    pytest.MonkeyPatch().setattr(os, "fsync", lambda _: None)
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    # By hand: torch.optim would import a compiler in each of the processes.
    momenta = [torch.zeros_like(parameter) for parameter in network.parameters()]
    history: list[dict[str, Any]] = []
    with checkpoints.restored() as found:
        if found is not None:
            state = checkpoint_files.load(found / "checkpoint.pt")
            network.load_state_dict(state["model"])
            momenta = state["momenta"]
            history = state["history"]
    (folder.parent / "restored").write_text(str(len(history)))
    for epoch in range(len(history), EPOCHS):
        seed_epoch(1, epoch, 0)
        losses = []
        for step in range(STEPS):
            if kill == (epoch, step):
                os.kill(os.getpid(), signal.SIGKILL)
            images = torch.randn(16, 8)
            loss = torch.nn.functional.cross_entropy(network(images), (images.sum(1) > 0).long())
            network.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter, momentum in zip(network.parameters(), momenta, strict=True):
                    assert parameter.grad is not None
                    momentum.mul_(0.9).add_(parameter.grad)
                    parameter.sub_(momentum, alpha=0.1)
            losses.append(loss.item())
        history.append({"epoch": epoch, "losses": losses})
        saved = checkpoints.new_folder()
        state = {"model": network.state_dict(), "momenta": momenta, "history": history}
        torch.save(state, saved / "checkpoint.pt")
        if checkpoints._Worker.in_flight is not None:
            checkpoints._Worker.in_flight.result()
        storing.epoch = epoch
        checkpoints.report(history[-1], saved, MODEL)
    worker.uploads.shutdown()
    (folder.parent / "history").write_text(json.dumps(history))


def run(folder: Path, kill: Place | None = None) -> int | None:
    """Trains in a process of its own; returns its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=train, args=(folder, kill))
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode


@pytest.mark.timeout(300)
def test_twenty_kills_change_nothing(  # F21
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From Python 3.13 on the server has this process' path, and not the working folder.
    monkeypatch.syspath_prepend(ROOT)
    for name in ("calm", "killed"):
        (tmp_path / name / "run").mkdir(parents=True)
    assert run(tmp_path / "calm/run") == 0
    seed = secrets.randbits(32)
    places = [(epoch, place) for epoch in range(EPOCHS) for place in PLACES]
    kills = [places[i] for i in sorted(random.Random(seed).sample(range(len(places)), KILLS))]
    for kill in kills:
        said = f"seed {seed}, kill at {kill} of {kills}"
        assert run(tmp_path / "killed/run", kill) == -signal.SIGKILL, said
        restored = int((tmp_path / "killed/restored").read_text())
        epoch, place = kill
        # What was stored before this start; the next one has to find what this one adds.
        assert restored <= epoch, said
        left = tmp_path / "killed/run"
        stored = sum(1 for path in left.glob("*/manifest.json")) and max(
            int(path.parent.name[11:17]) for path in left.glob("*/manifest.json")
        )
        assert stored >= epoch - (1 if isinstance(place, int) else 0), said
    assert run(tmp_path / "killed/run") == 0
    ends = [json.loads((tmp_path / name / "history").read_text()) for name in ("calm", "killed")]
    assert ends[0] == ends[1], f"seed {seed}"
    assert len(ends[0]) == EPOCHS
