"""P32: what `trainyard.log` costs a step of a millisecond, which calls it once.

Both ways make the same steps in a process of their own. The goal is that of seconds, 2 % more.
"""

import tempfile
from pathlib import Path

from bench.form import Form
from bench.measure import Ratio, in_turn, python

ROUNDS = 10
STEPS = 5000
GOAL = 1.02
LOOP = """
import json, sys, time, trainyard
values, logs = list(range(150_000)), sys.argv[1] == "log"
trainyard.log(loss=1.0) if logs else None  # begins its thread
began = time.perf_counter()
for step in range(int(sys.argv[2])):
    loss = sum(values) / len(values)
    if logs:
        trainyard.log(loss=loss, step=step)
print(json.dumps({"figures": 0, "seconds": time.perf_counter() - began}))
"""


def run(form: Form) -> list[Ratio]:
    """Return the ratio."""
    steps = form.pick(STEPS, 100)
    with tempfile.TemporaryDirectory() as name:
        place = {"TRAINYARD_STORAGE_URL": Path(name).as_uri(), "TRAINYARD_RUN": "p32"}

        def loop(way: str) -> float:
            return float(python("-c", LOOP, way, str(steps), **place)["seconds"])

        ours, plain = in_turn(form.rounds(ROUNDS), lambda: loop("log"), lambda: loop("plain"))
    return [
        Ratio(
            name="P32 log",
            ours=[seconds / steps * 1000 for seconds in ours],
            plain=[seconds / steps * 1000 for seconds in plain],
            unit="ms a step",
            goal=GOAL,
        )
    ]
