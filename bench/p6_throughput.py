"""P6: images per second of a training under Ray Train with one worker, beside the plain loop.

Each side is one run of bench/train_loop.py with one thread; its first epoch is not counted.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys

from bench.measure import Ratio, in_turn
from bench.scratch import ROOT, scratch_stack

ROUNDS = 4
LOOP = ROOT / "bench" / "train_loop.py"


def run() -> list[Ratio]:
    """The ratio."""
    with scratch_stack() as stack:
        stack.engine("up", "--yes")
        train = str(ROOT / ".venv" / "bin" / "train")
        ours = [train, "submit", str(LOOP), "-s", stack.name, "--", "--ray"]
        plain = [sys.executable, str(LOOP)]
        one_thread = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        figures = in_turn(
            ROUNDS,
            lambda: _images_per_second(ours, stack.environment, str(stack.project)),
            lambda: _images_per_second(plain, one_thread, str(ROOT)),
        )
    return [
        Ratio(
            name="P6 throughput",
            ours=figures[0],
            plain=figures[1],
            unit="images/s",
            goal=0.97,
            at_most=False,
        )
    ]


def _images_per_second(command: list[str], environment: dict[str, str], folder: str) -> float:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    # Under Ray the line begins with the name of the worker.
    found = re.findall(r'\{"figures": .*\}', done.stdout)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return float(statistics.median(json.loads(found[0])["figures"][1:]))
