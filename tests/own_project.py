"""A reader's own project, as `train init` writes it, with a text and a model for a CPU."""

import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from tests import ran
from trainyard.quickstart import init

# A text without a network.
SMALL = """
FORCE_CPU, TEXT = True, "python"
LAYERS, HEADS, WIDTH, BLOCK, BATCH, STEPS, EPOCHS = 2, 2, 32, 32, 8, 20, 2
"""


def write(project: Path) -> None:
    init.write(project)
    with (project / "src/config/__init__.py").open("a") as settings:
        settings.write(SMALL)


def train(folder: Path, outputs: Path, environment: Mapping[str, str]) -> None:
    """Train a fresh project on the stack of some outputs, by one argument and no changed line."""
    project = folder / "project"
    write(project)
    stack = ("--name", "own-project", "--stack", "test")
    said = ran.output(
        [sys.executable, "src/train_chargpt.py", *stack],
        cwd=project,
        env={**environment, "HOME": str(folder), "TRAINYARD_OUTPUTS": str(outputs)},
        timeout=280,
    )
    checkpoint = Path(said.strip().splitlines()[-1].partition("checkpoint ")[2])
    assert folder / "ray-results/own-project" in checkpoint.parents, said
    assert torch.load(checkpoint / "state.pt", weights_only=True)["epoch"] == 1
