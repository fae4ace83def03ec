"""P7: images per second of two workers of Ray Train with a thread each, beside torchrun's.

And beside one process with both threads, which averages no gradients: the most there can be. Each
side is one run of bench/ddp_loop.py; all must have the same losses after each of its first steps.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence

from bench.measure import Ratio, in_turn
from bench.scratch import ROOT, scratch_stack

ROUNDS = 4
LOOP = ROOT / "bench" / "ddp_loop.py"
TOLERANCE = 1e-6  # of a loss, which is about 2.5


def run() -> list[Ratio]:
    """The two ratios."""
    with scratch_stack() as stack:
        stack.engine("up", "--yes")
        train = str(ROOT / ".venv" / "bin" / "train")
        ours = [train, "submit", str(LOOP), "-s", stack.name, "--", "--ray"]
        torchrun = [sys.executable, "-m", "torch.distributed.run"]
        rival = [*torchrun, "--standalone", "--nproc-per-node=2", str(LOOP)]
        here = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        losses: list[list[float]] = []
        limits: list[float] = []

        def rate(command: Sequence[str], environment: dict[str, str], folder: str) -> float:
            figure, found = _figures(command, environment, folder)
            losses.append(found)
            return figure

        def others() -> float:
            figure = rate(rival, here, str(ROOT))
            limits.append(rate([sys.executable, str(LOOP)], here, str(ROOT)))
            return figure

        mine, theirs = in_turn(
            ROUNDS, lambda: rate(ours, stack.environment, str(stack.project)), others
        )
    _check(losses)
    return [
        Ratio(
            name="P7 two workers",
            ours=mine,
            plain=theirs,
            unit="images/s",
            goal=0.97,
            at_most=False,
            note="beside torchrun",
        ),
        Ratio(
            name="P7 two workers, limit",
            ours=mine,
            plain=limits[1:],
            unit="images/s",
            goal=0.85,
            at_most=False,
            note="beside one process with two threads",
        ),
    ]


def _check(losses: Sequence[Sequence[float]]) -> None:
    for step, found in enumerate(zip(*losses, strict=True)):
        if max(found) - min(found) > TOLERANCE:
            raise RuntimeError(f"losses of step {step} differ by more than {TOLERANCE}: {found}")


def _figures(
    command: Sequence[str], environment: dict[str, str], folder: str
) -> tuple[float, list[float]]:
    """Images per second, the median of the epochs, and the losses."""
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    # Under Ray the line begins with the name of the worker.
    found = re.findall(r'\{"figures": .*\}', done.stdout)
    if done.returncode != 0 or len(found) != 1:
        raise RuntimeError(f"{command} failed:\n{done.stdout}{done.stderr}")
    record = json.loads(found[0])
    return statistics.median(record["figures"]), record["losses"]
