"""A job for tests of the queue, and `train` beside a stack's outputs."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

TINY = Path(__file__).parents[1] / "training/tiny.py"
HELD = "native-0-8"  # a fault: at this step, of 4 an epoch, the first worker holds
SUBMIT = ("submit", str(TINY), "--no-wait", "--name")


def ran(command: Sequence[str | Path], variables: Mapping[str, str]) -> str:
    """Return what a command prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_", "TRAIN"))}
    done = subprocess.run(
        command, env=kept | variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train(file: Path, *arguments: str) -> str:
    """Return what a command of `train` prints."""
    command = [sys.executable, "-m", "trainyard.client", *arguments]
    return ran(command, {"TRAINYARD_OUTPUTS": str(file)})
