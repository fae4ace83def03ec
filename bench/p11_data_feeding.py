"""P11: images per second that Ray Data streams from the object store, beside torch's DataLoader.

The same 6,000 JPEGs, decoded by the same code in two processes: in shards in the object store for
ours, files of this machine for the DataLoader. Two limits beside it: decoding alone, and taking
what is decoded already. Memory must not grow from the first passes over the data to the next ones.
Each side is one run of bench/feed_loop.py.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.feed_loop import PROCESSES, RECIPE
from bench.measure import Ratio, in_turn
from bench.scratch import ROOT, scratch_stack
from training.data import streaming, synthetic_images

ROUNDS = 4
LOOP = ROOT / "bench" / "feed_loop.py"
GROWTH_MB = 60.0  # what a process may still gather after two passes; each decodes 3.6 GB
MB = 1e6  # bytes


def run() -> list[Ratio]:
    """The ratios beside the DataLoader and beside decoding alone."""
    node = {"cpus": PROCESSES + 1}  # one for who takes the batches
    with (
        tempfile.TemporaryDirectory(prefix="ty-bench-") as name,
        scratch_stack(workers=1, worker=node) as stack,
    ):
        files = Path(name)
        for index in range(RECIPE.images):
            image = synthetic_images.encode(index, RECIPE.side)
            (files / f"{index:05d}.jpg").write_bytes(image)
        stack.engine("up", "--yes")
        train = str(ROOT / ".venv" / "bin" / "train")
        ours = [train, "submit", str(LOOP), "-s", stack.name, "--", "--ray"]
        here = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        decoding: list[float] = []
        limits: list[float] = []

        def mine() -> float:
            record = _record(ours, stack.environment, str(stack.project))
            _check_memory(record)
            return float(statistics.median(record["figures"]))

        def alone(way: str) -> float:
            record = _record([sys.executable, str(LOOP), f"--{way}={files}"], here, str(ROOT))
            return float(statistics.median(record["figures"]))

        def theirs() -> float:
            decoding.append(alone("decode"))
            limits.append(alone("ram"))
            return alone("load")

        figures = in_turn(ROUNDS, mine, theirs)
    return [
        Ratio(
            name="P11 data feeding",
            ours=figures[0],
            plain=figures[1],
            unit="images/s",
            goal=0.8,
            at_most=False,
            note=f"beside a DataLoader; decoded in RAM {statistics.median(limits[1:]):.0f}",
        ),
        Ratio(
            name="P11 data feeding, limit",
            ours=figures[0],
            plain=decoding[1:],
            unit="images/s",
            goal=0.0,
            at_most=False,
            note="beside decoding alone; no goal",
        ),
    ]


def _check_memory(record: dict[str, Any]) -> None:
    first, second = record["largest_mb"]
    store = max(record["object_store_mb"])
    if second - first > GROWTH_MB or store > 2 * streaming.STREAM_BYTES / MB:
        raise RuntimeError(
            f"a process took {first:.0f} MB, then {second:.0f} MB; the object store {store:.0f} MB"
        )


def _record(command: Sequence[str], environment: dict[str, str], folder: str) -> dict[str, Any]:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    found = re.findall(r'^\{"figures": .*\}$', done.stdout, re.MULTILINE)
    if done.returncode != 0 or len(found) != 1:
        raise RuntimeError(f"{command} failed:\n{done.stdout}{done.stderr}")
    record: dict[str, Any] = json.loads(found[0])
    return record
