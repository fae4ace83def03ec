"""P19: MB/s of `train pull` of a checkpoint, beside boto3; and a pull that finds nothing new.

Ours compares the sha256 of what comes with the manifest and names it when it is whole; boto3 is
`download_file` with its defaults.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3

from bench.measure import Ratio, in_turn, seconds
from bench.scratch import ROOT, ScratchStack, scratch_stack
from client import outputs
from client.pull.transfer import Transfer
from client.store import open_store
from training import checkpoint_files
from training.objects import open_url
from training.runs import Run

ROUNDS = 5
MB = 1_000_000
SIZE_MB = 500
NAME = "checkpoint_000001-0000"
FILE = "checkpoint.pt"
AGAIN_S = 1.0  # goal of a pull that finds nothing new, with the start of the command


def run() -> list[Ratio]:
    """The ratios."""
    with scratch_stack() as stack, tempfile.TemporaryDirectory(prefix="ty-pull-") as folder:
        stack.engine("up", "--yes")
        return _measured(stack, Path(folder))


def _measured(stack: ScratchStack, folder: Path) -> list[Ratio]:
    read = stack.command("output", "--json", "--show-secrets")
    text = subprocess.run(
        read, env=stack.environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    found = outputs.parse(text, stack.name, "the stack")
    file = folder / "outputs.json"
    file.touch(mode=0o600)
    file.write_text(text)
    client = _store_run(found, folder)

    def ours() -> float:
        shutil.rmtree(folder / "results", ignore_errors=True)
        os.sync()  # else the disk is still at it while the clock runs
        begun = time.perf_counter()
        Transfer(open_store(found), "first", folder / "results" / "first").run()
        return SIZE_MB / (time.perf_counter() - begun)

    def plain() -> float:
        (folder / "plain").unlink(missing_ok=True)
        os.sync()
        begun = time.perf_counter()
        client.download_file(found.bucket, f"first/{NAME}/{FILE}", str(folder / "plain"))
        return SIZE_MB / (time.perf_counter() - begun)

    mine, theirs = in_turn(ROUNDS, ours, plain)
    command = [str(ROOT / ".venv" / "bin" / "train"), "pull", "first", "--outputs", str(file)]
    again = [seconds([*command, "--to", str(folder / "results")]) for _ in range(ROUNDS)]
    return [
        Ratio(
            name=f"P19 pull {SIZE_MB} MB",
            ours=mine,
            plain=theirs,
            unit="MB/s",
            goal=0.9,
            at_most=False,
        ),
        Ratio(
            name="P19 nothing new",
            ours=again,
            plain=[AGAIN_S],
            unit="s",
            goal=1.0,
            note="plain is the bound",
        ),
    ]


def _store_run(found: outputs.StackOutputs, folder: Path) -> Any:
    """Stores a run with one checkpoint; a client of its store."""
    keys = {
        "AWS_ENDPOINT_URL": found.object_store_endpoint,
        "AWS_ACCESS_KEY_ID": found.access_key,
        "AWS_SECRET_ACCESS_KEY": found.secret_key,
    }
    os.environ.update(keys)
    files = folder / "files"
    files.mkdir()
    (files / FILE).write_bytes(os.urandom(SIZE_MB * MB))
    Run(found.storage_url, "first").start({"epochs": 1})
    checkpoint_files.store(open_url(f"{found.storage_url}/first"), NAME, files, {"file": FILE})
    shutil.rmtree(files)
    return boto3.client("s3", region_name="us-east-1")
