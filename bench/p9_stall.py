"""P9: an epoch with a checkpoint to the store, next to the same without one.

AlexNet with 690 MB of state every 35 s or so, the proportion that the course's has on its GPU;
most trainings need less (Food-11's MobileNetV2: 27 MB in 24 s). Each side is one run of
bench/checkpoint_stall.py; an epoch's upload goes on in the next, which is counted with it.
"""

import statistics

from bench.form import Form
from bench.measure import ROOT, Ratio, in_turn

ROUNDS = 2
EPOCHS = 2
IMAGES = 1280
JOB = ROOT / "bench" / "checkpoint_stall.py"


def run(form: Form) -> list[Ratio]:
    """Return the ratio."""
    size = (str(form.pick(EPOCHS, 1)), str(form.pick(IMAGES, 64)))
    with form.stack() as stack:

        def seconds(way: str) -> float:
            return float(
                statistics.median(stack.submit(JOB, *size, way, name=f"p9-{way}")["figures"])
            )

        ours, plain = in_turn(
            form.rounds(ROUNDS), lambda: seconds("checkpoints"), lambda: seconds("none")
        )
    return [Ratio(name="P9 stall", ours=ours, plain=plain, unit="s", goal=1.05)]
