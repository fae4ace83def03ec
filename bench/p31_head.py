"""P31: from the SIGKILL of the head to the first step of its run's next start, with a queue.

Beside it the same run whose first worker is killed. Who trains goes on for some seconds after the
head has died: the next start is seen by a step that was trained before.
"""

import itertools
import time
from pathlib import Path

from bench import measure
from bench.form import Form
from bench.measure import ROOT, Ratio, in_turn
from bench.scratch import ScratchStack
from tests import waiting

ROUNDS = 3
GOAL_S = 30.0
JOB = ROOT / "tests/integration/infra/drained.py"
EPOCH = 40  # steps, of 0.25 s
DEADLINE_S = 240


def run(form: Form) -> list[Ratio]:
    """Return the two ratios; the goal is absolute."""
    count = itertools.count(1)
    with form.stack(queue=True, workers=2, worker={"cpus": 1}) as stack:
        head, worker = in_turn(
            form.rounds(ROUNDS),
            lambda: _resumed(stack, next(count), "gcs_server"),
            lambda: _resumed(stack, next(count), "RayTrainWorker"),
        )
    return [
        Ratio(name="P31 head", ours=head, plain=[GOAL_S], unit="s", goal=1.0),
        Ratio(name="P31 worker", ours=worker, plain=[GOAL_S], unit="s", goal=None),
    ]


def _resumed(stack: ScratchStack, number: int, killed: str) -> float:
    """Return the seconds from the kill of a process to the first step of the next start."""
    steps, name = Path(stack.project.parent, f"steps-{number}"), f"p31-{number}"
    submit = ("submit", "--no-wait", "--name", name, JOB, "--", "--epochs", "40")
    arguments = (*submit, "--max-failures", "1", "--steps", str(steps))
    measure.run(stack.train(*map(str, arguments)), env=stack.environment, cwd=stack.project)

    def trained() -> list[int]:
        return [*map(int, steps.read_text().split())] if steps.exists() else []

    # In the middle of the second epoch: then its next start begins with an earlier step.
    waiting.wait_for("steps", lambda: len(trained()) > 1.5 * EPOCH, DEADLINE_S)
    stack.kill(killed)
    begun = time.monotonic()

    def is_back() -> bool:
        found = trained()
        return any(now <= before for before, now in itertools.pairwise(found))

    waiting.wait_for("the next start", is_back, DEADLINE_S)
    seconds = time.monotonic() - begun
    measure.run(stack.train("stop", name), env=stack.environment, cwd=stack.project)
    return seconds
