"""P21: a sweep of 12 points of one second on two slots, next to the limit of two slots.

The limit is 6 s and the start of one job, which is measured in the same run: from the start of
`ray job submit` to the first line of a job. Points are jobs of their own, then tasks of one job.
"""

import functools
import itertools
import os
import sys
import tempfile
from pathlib import Path

from bench import measure
from bench.form import Form
from bench.measure import Ratio, in_turn
from bench.p5_submit import LINE, until_line

ROUNDS = 3
POINTS, SLOTS = 12, 2  # a point takes a second
SCRIPT = """import time

import hydra


@hydra.main(version_base="1.3", config_path=None)
def main(config):
    time.sleep(1)
    return config.x


if __name__ == "__main__":
    main()
"""
GOALS = {"job": 1.5, "task": 1.2}


def run(form: Form) -> list[Ratio]:
    """Return both ratios."""
    points = form.pick(POINTS, SLOTS)
    slots = form.stack(workers=SLOTS, worker={"cpus": 1})
    with slots as stack, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        private, jobs = folder / "private", folder / "jobs"
        private.mkdir(mode=0o700)
        jobs.mkdir()
        (jobs / "sleep.py").write_text(SCRIPT)
        (jobs / "hello.py").write_text(f"print({LINE!r}, flush=True)\n")
        plain, ray = stack.plain_submit(
            private, "--working-dir", str(jobs), "--", "python", "hello.py"
        )
        ours = os.environ | {"TRAINYARD_OUTPUTS": str(stack.outputs_file(private))}
        count = itertools.count()

        def sweep(unit: str) -> float:
            command = [sys.executable, "sleep.py", "--multirun", "hydra/launcher=ray"]
            command += [f"hydra.launcher.unit={unit}", f"+x=range({points})"]
            where = f"hydra.sweep.dir={folder / f'sweep{next(count)}'}"
            return measure.run([*command, where], cwd=jobs, env=ours).seconds

        *sweeps, limit = in_turn(
            form.rounds(ROUNDS),
            *(functools.partial(sweep, unit) for unit in GOALS),
            lambda: points / SLOTS + until_line(plain, ray, jobs),
        )
    return [
        Ratio(
            name=f"P21 sweep, a {unit} each",
            ours=figures,
            plain=limit,
            unit="s",
            goal=goal,
        )
        for (unit, goal), figures in zip(GOALS.items(), sweeps, strict=True)
    ]
