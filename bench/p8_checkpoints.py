"""P8: MB/s of a checkpoint from the report until it can be restored, beside boto3 and the disk.

All three write the same kind of files in turn in one worker of Ray Train (bench/checkpoint_write).
Ours hashes them, looks at what the store has, and writes a manifest; boto3 is `upload_file` of each
file with its defaults. Every checkpoint of ours is fetched again and compared.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess

from bench.checkpoint_write import CASES, MB
from bench.measure import Ratio
from bench.scratch import ROOT, scratch_stack

ROUNDS = 5
GOALS = {"64 MB": 0.9, "512 MB": 0.9, "200 x 100 kB": 1.0}


def run() -> list[Ratio]:
    """The ratios."""
    with scratch_stack() as stack:
        stack.engine("up", "--yes")
        train = str(ROOT / ".venv" / "bin" / "train")
        job = str(ROOT / "bench" / "checkpoint_write.py")
        done = subprocess.run(
            [train, "submit", job, "--name", "p8", "-s", stack.name, "--", str(ROUNDS)],
            env=stack.environment,
            cwd=stack.project,
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.findall(r'\{"figures": .*\}', done.stdout)
    if done.returncode != 0 or not found:
        raise RuntimeError(f"the job failed:\n{done.stdout}{done.stderr}")
    figures = json.loads(found[0])["figures"]
    ratios = []
    for case, sizes in CASES.items():
        speed = {
            way: [sum(sizes) / MB / seconds for seconds in taken]
            for way, taken in figures[case].items()
        }
        goal = GOALS.get(case, 0.0)
        disk = f"local disk {statistics.median(speed['disk']):.0f} MB/s"
        ratios.append(
            Ratio(
                name=f"P8 checkpoint {case}",
                ours=speed["ours"],
                plain=speed["boto3"],
                unit="MB/s",
                goal=goal,
                at_most=False,
                note=disk if goal else f"{disk}; no goal",
            )
        )
    return ratios
