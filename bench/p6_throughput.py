"""P6: images per second of a training under Ray Train with one worker, next to the plain loop.

And next to Ray Train alone. Each side is one run of bench/train_loop.py with one thread; its first
epoch is not counted.
"""

import statistics

from bench.form import Form
from bench.measure import ROOT, Ratio, in_turn, python

ROUNDS = 4
LOOP = ROOT / "bench" / "train_loop.py"
IMAGES = 768  # of an epoch


def run(form: Form) -> list[Ratio]:
    """Return the ratio."""
    images = f"--images={form.pick(IMAGES, 64)}"
    with form.stack() as stack:
        ours, plain, alone = in_turn(
            form.rounds(ROUNDS),
            lambda: statistics.median(stack.submit(LOOP, "--ray", "job", images)["figures"][1:]),
            lambda: statistics.median(python(LOOP, images)["figures"][1:]),
            lambda: statistics.median(python(LOOP, "--ray", "alone", images)["figures"][1:]),
        )
    return [
        Ratio(
            name="P6 throughput",
            ours=ours,
            plain=plain,
            alone=alone,
            unit="images/s",
            goal=0.97,
            at_most=False,
        )
    ]
