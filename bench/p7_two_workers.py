"""P7: images per second of two workers of Ray Train with a thread each, next to torchrun's.

And next to Ray Train alone, and to one process with both threads, which averages no gradients: the
upper limit. Each side is one run of bench/ddp_loop.py; all must have the same losses in its steps
in double precision.
"""

import statistics
from typing import Any

from bench.form import Form
from bench.losses import check_same
from bench.measure import ROOT, Ratio, in_turn, python

ROUNDS = 4
LOOP = ROOT / "bench" / "ddp_loop.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
IMAGES = 768  # of an epoch
# Of a loss, which is about 2.5. Two processes add up the terms of a batch in another order than one
# does. In single precision, whose rounding error is 6e-8, three steps make 2e-6 of it, so a bound
# that passes tells little. In double precision (1e-16) they make about 4e-16; a wrong average
# or a wrong share of a batch makes 1e-3 or more.
TOLERANCE = 1e-12


def run(form: Form) -> list[Ratio]:
    """Return the two ratios."""
    images = f"--images={form.pick(IMAGES, 192)}"
    losses: list[list[float]] = []

    def rate(record: dict[str, Any]) -> float:
        losses.append(record["losses"])
        return float(statistics.median(record["figures"]))

    with form.stack() as stack:
        ours, theirs, limit, alone = in_turn(
            form.rounds(ROUNDS),
            lambda: rate(stack.submit(LOOP, "--ray", "job", images)),
            lambda: rate(python(*TORCHRUN, LOOP, images)),
            lambda: rate(python(LOOP, images)),
            lambda: rate(python(LOOP, "--ray", "alone", images)),
        )
    check_same(losses, TOLERANCE)
    return [
        Ratio(
            name="P7 two workers",
            ours=ours,
            plain=theirs,
            alone=alone,
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
