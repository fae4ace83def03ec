"""P20: tokens per second of the job chargpt with one worker, next to the plain loop.

And next to that loop with Ray Train alone. All train nanoGPT's small size on the same text, in one
thread, and must have the same losses. The first epoch is not counted.
"""

import itertools
import json
import re
import statistics

from bench import measure
from bench.form import Form
from bench.losses import check_same
from bench.measure import ROOT, Ratio, in_turn, python

ROUNDS = 4
LOOP = ROOT / "bench" / "gpt_loop.py"
STEPS = 100  # of an epoch
TOLERANCE = 1e-6  # of an epoch's mean loss, which is about 2.5


def run(form: Form) -> list[Ratio]:
    """Return the ratio."""
    epochs, steps = form.pick((3, STEPS), (2, 5))
    settings = ("--text", "python", f"--epochs={epochs}", f"--steps-per-epoch={steps}")
    losses: list[list[float]] = []
    with form.stack() as stack:
        data = {"TRAINYARD_DATA_DIR": str(stack.project / "texts")}
        environment = stack.project / "env.json"  # JSON is YAML
        environment.write_text(json.dumps({"env_vars": data}))
        here = {"env": stack.environment, "cwd": stack.project}
        count = itertools.count(1)

        def ours() -> float:
            name = f"gpt-{next(count)}"
            options = ("--name", name, "--runtime-env", environment, "--", *settings)
            said = measure.run(stack.train("submit", "chargpt", *options), **here).stdout
            shown = measure.run(stack.train("show", name, "--json"), **here).stdout
            metrics = json.loads(shown)["metrics"]
            losses.append([each[key] for key in ("loss", "valid_loss") for each in metrics])
            found = re.findall(r"([\d,]+) tokens/s", said)
            return statistics.median(float(each.replace(",", "")) for each in found[1:])

        def plain(*more: str) -> float:
            record = python(LOOP, *settings, *more, **data)
            losses.append(record["losses"] + record["valid_losses"])
            return float(statistics.median(record["figures"][1:]))

        rounds = form.rounds(ROUNDS)
        mine, theirs, alone = in_turn(rounds, ours, plain, lambda: plain("--ray-alone"))
    check_same(losses, TOLERANCE)
    return [
        Ratio(
            name="P20 chargpt",
            ours=mine,
            plain=theirs,
            alone=alone,
            unit="tokens/s",
            goal=0.97,
            at_most=False,
        )
    ]
