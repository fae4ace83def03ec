"""`train drill` on containers: the same as on processes, by the same commands."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[4]
# Long enough for a fault to find it still training.
RUN = ["--epochs", "8", "--max-images", "96", "--batch-size", "32"]


@pytest.fixture
def train(lab: Any, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `train ARGUMENTS` to its end."""
    file = tmp_path / "outputs.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(lab.stack.outputs()))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_", "TRAIN"))}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "training", *arguments],
            cwd=ROOT,
            env={**kept, "TRAINYARD_OUTPUTS": str(file)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ["worker-loss"],  # F21
        ["store-loss", "--seconds", "5"],  # F22
    ],
    ids=["worker", "store"],
)
def test_a_run_ends_as_if_nothing_had_happened(
    arguments: list[str],
    lab: Any,
    train: Callable[..., subprocess.CompletedProcess[str]],
    request: pytest.FixtureRequest,
) -> None:
    run = f"drilled-{request.node.callspec.id}"
    started = lab.container("minio").attrs["State"]["StartedAt"]
    submitted = train("submit", "alexnet", "--name", run, "--no-wait", "--", *RUN)
    assert submitted.returncode == 0, submitted.stderr
    try:
        done = train("drill", arguments[0], run, *arguments[1:], "--yes", "--json")
    finally:
        train("stop", run)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    assert report["passed"] is True
    assert report["epochs"] == [8, 8]
    restarted = lab.container("minio").attrs["State"]["StartedAt"] != started
    assert restarted == (arguments[0] == "store-loss")
