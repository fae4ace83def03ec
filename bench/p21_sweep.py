"""P21: a sweep of 12 points of one second on two slots, beside what two slots allow.

The limit is 6 s and the start of one job, which is measured in the same run: from the start of
`ray job submit` to the first line of a job. Points are jobs of their own, then tasks of one job.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

from bench.measure import Ratio, in_turn, seconds
from bench.p5_submit import LINE, until_line
from bench.scratch import scratch_stack

ROUNDS = 3
POINTS, SLOTS = 12, 2
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


def run() -> list[Ratio]:
    """Both ratios."""
    slots = scratch_stack(workers=SLOTS, worker={"cpus": 1})
    with slots as stack, tempfile.TemporaryDirectory() as name:
        stack.engine("up", "--yes")
        folder = Path(name)
        private, jobs = folder / "private", folder / "jobs"
        private.mkdir(mode=0o700)
        jobs.mkdir()
        (jobs / "sleep.py").write_text(SCRIPT)
        (jobs / "hello.py").write_text(f"print({LINE!r}, flush=True)\n")
        plain, ray = stack.plain_submit(
            private, "--working-dir", str(jobs), "--", "python", "hello.py"
        )
        (private / "outputs").touch(mode=0o600)
        (private / "outputs").write_text(json.dumps(stack.outputs()))
        ours = os.environ | {"TRAINYARD_OUTPUTS": str(private / "outputs")}
        return [_ratio(unit, jobs, ours, ray, plain) for unit in GOALS]


def _ratio(
    unit: str, folder: Path, ours: dict[str, str], ray: dict[str, str], plain: list[str]
) -> Ratio:
    count = itertools.count()

    def sweep() -> float:
        command = [sys.executable, "sleep.py", "--multirun", "hydra/launcher=ray"]
        command += [f"hydra.launcher.unit={unit}", f"+x=range({POINTS})"]
        where = f"hydra.sweep.dir={folder.parent / f'{unit}{next(count)}'}"
        return seconds([*command, where], cwd=folder, env=ours)

    def limit() -> float:
        return POINTS / SLOTS + until_line(plain, ray, folder)

    figures = in_turn(ROUNDS, sweep, limit)
    return Ratio(
        name=f"P21 sweep, a {unit} each",
        ours=figures[0],
        plain=figures[1],
        unit="s",
        goal=GOALS[unit],
    )
