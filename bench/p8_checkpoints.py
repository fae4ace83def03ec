"""P8: MB/s of a checkpoint from the report until it can be restored, next to boto3 and the disk.

All three write the same kind of files in turn in one worker of Ray Train (bench/checkpoint_write).
Ours hashes them, looks at the store's files, and writes a manifest; boto3 is `upload_file` of each
file with its defaults. Every checkpoint of ours is fetched again and compared.
"""

import statistics

from bench.checkpoint_write import CASES, MB
from bench.form import Form
from bench.measure import ROOT, Ratio

ROUNDS = 5
GOALS = {"64 MB": 0.9, "512 MB": 0.9, "200 x 100 kB": 1.0}


def run(form: Form) -> list[Ratio]:
    """Return the ratios."""
    cases = form.pick(tuple(CASES), ("1 MB", "200 x 100 kB"))
    job = ROOT / "bench" / "checkpoint_write.py"
    with form.stack() as stack:
        figures = stack.submit(job, str(form.rounds(ROUNDS)), *cases, name="p8")["figures"]
    ratios = []
    for case in cases:
        speed = {
            way: [sum(CASES[case]) / MB / seconds for seconds in taken]
            for way, taken in figures[case].items()
        }
        ratios.append(
            Ratio(
                name=f"P8 checkpoint, {case}",
                ours=speed["ours"],
                plain=speed["boto3"],
                unit="MB/s",
                goal=GOALS.get(case),
                at_most=False,
                note=f"local disk {statistics.median(speed['disk']):.0f} MB/s",
            )
        )
    return ratios
