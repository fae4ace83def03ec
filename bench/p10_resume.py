"""P10: from the SIGKILL of a training worker to its successor's first step.

Beside a process that imports torch, downloads the same checkpoint and makes one step, which is the
least there can be. The second figure is the same job with Ray Train's own settings. A run that
loses more than one interval of checkpoints ends the benchmark.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import boto3

from bench.measure import Ratio
from bench.resume_loop import FILE, INTERVAL
from bench.scratch import ROOT, ScratchStack, scratch_stack
from training.ray_train import SETTINGS

ROUNDS = 5
LOOP = ROOT / "bench" / "resume_loop.py"
POLL_VARIABLE = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
RAY_POLL_S = 2.0


def run() -> list[Ratio]:
    """The two ratios, whose goals are 1.5 times the limit and one poll."""
    poll = float(SETTINGS[POLL_VARIABLE])
    ours: list[float] = []
    default: list[float] = []
    limit: list[float] = []
    with scratch_stack() as stack, tempfile.TemporaryDirectory() as scratch:
        stack.engine("up", "--yes")
        folder = Path(scratch)
        (folder / "job").mkdir()
        script = folder / "job" / LOOP.name
        script.write_text(LOOP.read_text())
        plain = folder / "env.json"
        plain.write_text(json.dumps({"env_vars": {POLL_VARIABLE: str(RAY_POLL_S)}}))
        for index in range(ROUNDS + 1):  # the first round is not counted
            name = f"resume-{index}"
            ours.append(_resume(stack, script, name))
            default.append(_resume(stack, script, f"{name}-ray", "--runtime-env", str(plain)))
            limit.append(_limit(_url(stack, name), folder))
    least = statistics.median(limit[1:])
    return [
        Ratio(
            name=name,
            ours=figures[1:],
            plain=limit[1:],
            unit="s",
            goal=round(1.5 + wait / least, 2),
            note=f"1.5 times the limit and a poll of {wait:g} s",
        )
        for name, figures, wait in (
            ("P10 resume", ours, poll),
            ("P10 resume, Ray's own poll", default, RAY_POLL_S),
        )
    ]


def _resume(stack: ScratchStack, script: Path, name: str, *options: str) -> float:
    """Seconds from the kill to the first step of the next worker."""
    train = str(ROOT / ".venv" / "bin" / "train")
    done = subprocess.run(
        [train, "submit", str(script), "-s", stack.name, "--name", name, *options],
        env=stack.environment,
        cwd=stack.project,
        capture_output=True,
        text=True,
        check=False,
    )
    # Under Ray the line begins with the name of the worker.
    found = [json.loads(line) for line in re.findall(r'\{"event": .*\}', done.stdout)]
    if done.returncode != 0 or [each["event"] for each in found] != ["killed", "resumed"]:
        raise RuntimeError(f"{name} did not go on after a kill:\n{done.stdout}{done.stderr}")
    killed, resumed = found
    lost = killed["step"] - resumed["step"]
    if not 0 < lost <= INTERVAL:
        raise RuntimeError(f"{name} lost {lost} steps, of {INTERVAL} at most")
    return float(resumed["at"] - killed["at"])


def _limit(url: str, folder: Path) -> float:
    """Seconds from the start of a process to its first step."""
    begun = time.time()
    done = subprocess.run(
        [sys.executable, str(LOOP), "--url", url],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)["at"]) - begun


def _url(stack: ScratchStack, run: str) -> str:
    """Address of a run's newest checkpoint, which needs no credentials."""
    command = stack.command("output", "--json", "--show-secrets")
    done = subprocess.run(command, env=stack.environment, capture_output=True, check=True)
    outputs = json.loads(done.stdout)
    s3 = boto3.client(
        "s3",
        endpoint_url=outputs["objectStoreEndpoint"],
        aws_access_key_id=outputs["accessKey"],
        aws_secret_access_key=outputs["secretKey"],
        region_name="us-east-1",
    )
    listed = s3.list_objects_v2(Bucket=outputs["bucket"], Prefix=f"{run}/checkpoint_")["Contents"]
    key = max(entry["Key"] for entry in listed if entry["Key"].endswith(FILE))
    return str(
        s3.generate_presigned_url(
            "get_object", Params={"Bucket": outputs["bucket"], "Key": key}, ExpiresIn=600
        )
    )
