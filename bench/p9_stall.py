"""P9: an epoch with a checkpoint to the store, beside the same without one.

AlexNet with 690 MB of state every 35 s or so, the proportion that the course's has on its GPU;
most trainings ask for less (Food-11's MobileNetV2: 27 MB in 24 s). Each side is one run of
bench/checkpoint_stall.py; an epoch's upload goes on in the next, which is counted with it.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess

from bench.measure import Ratio, in_turn
from bench.scratch import ROOT, ScratchStack, scratch_stack

ROUNDS = 2
EPOCHS = 2


def run() -> list[Ratio]:
    """The ratio."""
    with scratch_stack() as stack:
        stack.engine("up", "--yes")
        ours, plain = in_turn(
            ROUNDS, lambda: _seconds(stack, "checkpoints"), lambda: _seconds(stack, "none")
        )
    return [Ratio(name="P9 stall by checkpoints", ours=ours, plain=plain, unit="s", goal=1.05)]


def _seconds(stack: ScratchStack, way: str) -> float:
    """Median of a run's epochs; checkpoints are removed with the stack."""
    train = str(ROOT / ".venv" / "bin" / "train")
    job = str(ROOT / "bench" / "checkpoint_stall.py")
    done = subprocess.run(
        [train, "submit", job, "--name", f"p9-{way}", "-s", stack.name, "--", str(EPOCHS), way],
        env=stack.environment,
        cwd=stack.project,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r'\{"figures": .*\}', done.stdout)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"the job failed:\n{done.stdout}{done.stderr}")
    return float(statistics.median(json.loads(found[0])["figures"]))
