"""Two workers whose base is thawed while they train; without Ray, which only starts them."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).resolve().parents[3]
GENERATOR = REPOSITORY / "docker/dataset/generated.py"
EPOCHS, THAW = 3, 1  # of the script


def test_the_thawed_base_learns_the_same_on_both_workers(tmp_path: Path) -> None:  # D39
    generate = runpy.run_path(str(GENERATOR))["generate"]
    images = tmp_path / "Food-11"
    generate(images, {"training": 44, "validation": 11, "evaluation": 11}, side=32)
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.training.thaw", tmp_path],
        env=os.environ | {"FOOD11_DATA_DIR": str(images), "OMP_NUM_THREADS": "1"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert one == other
    # It is frozen until the thaw, and changes in every epoch from then on.
    assert len(set(one)) == 1 + EPOCHS - THAW
    assert len(set(one[:THAW])) == 1
