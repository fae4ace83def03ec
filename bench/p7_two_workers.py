"""P7: images per second of two workers of Ray Train with a thread each, next to torchrun's.

And next to one process with both threads, which averages no gradients: the upper limit. Each
side is one run of bench/ddp_loop.py; all must have the same losses after each of its first steps.
"""

from __future__ import annotations

import statistics
from typing import Any

from bench.form import Form
from bench.losses import check_same
from bench.measure import ROOT, Ratio, in_turn, python

ROUNDS = 4
LOOP = ROOT / "bench" / "ddp_loop.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
IMAGES = 768  # of an epoch
TOLERANCE = 1e-6  # of a loss, which is about 2.5


def run(form: Form) -> list[Ratio]:
    """Return the two ratios."""
    images = f"--images={form.pick(IMAGES, 192)}"
    losses: list[list[float]] = []

    def rate(record: dict[str, Any]) -> float:
        losses.append(record["losses"])
        return float(statistics.median(record["figures"]))

    with form.stack() as stack:
        ours, theirs, limit = in_turn(
            form.rounds(ROUNDS),
            lambda: rate(stack.submit(LOOP, "--ray", images)),
            lambda: rate(python(*TORCHRUN, LOOP, images)),
            lambda: rate(python(LOOP, images)),
        )
    check_same(losses, TOLERANCE)
    return [
        Ratio(
            name="P7 two workers",
            ours=ours,
            plain=theirs,
            unit="images/s",
            goal=0.97,
            at_most=False,
        ),
        Ratio(
            name="P7 limit",
            ours=ours,
            plain=limit,
            unit="images/s",
            goal=0.85,
            at_most=False,
        ),
    ]
