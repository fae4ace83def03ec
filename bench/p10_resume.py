"""P10: from the SIGKILL of a training worker to its successor's first step.

Compared with a process that imports torch, downloads the same checkpoint and makes one step, which
is the least possible; beside it Ray Train alone, with checkpoints in a folder. The second figure is
the same job with Ray Train's own poll. A run that loses more than one interval of checkpoints ends
the benchmark.
"""

import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import measure
from bench.form import Form
from bench.measure import ROOT, Ratio, in_turn
from bench.resume_loop import FILE, INTERVAL
from bench.scratch import ScratchStack
from trainyard.ray_train import SETTINGS

ROUNDS = 5
LOOP = ROOT / "bench" / "resume_loop.py"
POLL_VARIABLE = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
RAY_POLL_S = 2.0


def run(form: Form) -> list[Ratio]:
    """Return the two ratios, whose goals are 1.5 times the limit and one poll."""
    with form.stack() as stack, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job").mkdir()
        script = folder / "job" / LOOP.name
        script.write_text(LOOP.read_text())
        plain = folder / "env.json"
        plain.write_text(json.dumps({"env_vars": {POLL_VARIABLE: str(RAY_POLL_S)}}))
        count = itertools.count(1)

        def resume(*options: str) -> float:
            command = stack.train("submit", script, "--name", f"p10-{next(count)}", *options)
            return _resume(command, env=stack.environment, cwd=stack.project)

        def alone() -> float:
            known = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            return _resume([sys.executable, LOOP, "--ray-alone"], env=known, cwd=folder)

        ways = [resume, lambda: _limit(_url(stack), folder), alone]
        ways += form.pick([lambda: resume("--runtime-env", str(plain))], [])
        ours, limit, rays, *default = in_turn(form.rounds(ROUNDS), *ways)
    least = statistics.median(limit)
    kinds = [("P10 resume", ours, rays, float(SETTINGS[POLL_VARIABLE]))]
    kinds += [("P10 resume, Ray's own poll", figures, [], RAY_POLL_S) for figures in default]
    return [
        Ratio(
            name=name,
            ours=figures,
            plain=limit,
            alone=beside,
            unit="s",
            goal=round(1.5 + wait / least, 2),
            note=f"goal: 1.5 times the limit and a poll of {wait:g} s",
        )
        for name, figures, beside, wait in kinds
    ]


def _resume(command: Sequence[str | Path], **options: Any) -> float:
    """Return the seconds from the kill to the first step of the next worker."""
    said = measure.run(command, **options).stdout
    # Under Ray the line begins with the name of the worker.
    found = [json.loads(line) for line in re.findall(r'\{"event": .*\}', said)]
    if [each["event"] for each in found] != ["killed", "resumed"]:
        raise measure.failed(command, "did not go on after a kill", said)
    killed, resumed = found
    lost = killed["step"] - resumed["step"]
    if not 0 < lost <= INTERVAL:
        raise measure.failed(command, f"lost {lost} steps, of {INTERVAL} at most", said)
    return float(resumed["at"] - killed["at"])


def _limit(url: str, folder: Path) -> float:
    """Return the seconds from the start of a process to its first step."""
    begun = time.time()
    done = measure.run(
        [sys.executable, LOOP, "--url", url], env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=folder
    )
    return float(json.loads(done.stdout)["at"]) - begun


def _url(stack: ScratchStack) -> str:
    """Return the address of this benchmark's newest checkpoint, which needs no credentials."""
    s3, bucket = stack.s3()
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="p10-")
    entries = [entry for page in pages for entry in page.get("Contents", ())]
    files = [entry for entry in entries if entry["Key"].endswith(FILE)]
    key = max(files, key=lambda entry: entry["LastModified"])["Key"]
    return str(
        s3.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": key}, ExpiresIn=600
        )
    )
