"""P11: images per second that Ray Data streams from the object store, next to torch's DataLoader.

The same JPEGs, decoded by the same code in two processes: in shards in the object store for
ours, files of this machine for the DataLoader. Two limits next to it: decoding alone, and taking
images that are decoded already. Memory must not grow from the first passes over the data to the
next ones. Each side is one run of bench/feed_loop.py.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.feed_loop import PROCESSES, SHARD_IMAGES, SIDE
from bench.form import Form
from bench.measure import ROOT, FailedError, Ratio, in_turn, python
from trainyard.data import streaming, synthetic_images

ROUNDS = 4
LOOP = ROOT / "bench" / "feed_loop.py"
IMAGES = 6000
GROWTH_MB = 60.0  # by which a process may still grow after two passes; each decodes 3.6 GB
MB = 1e6  # bytes


def run(form: Form) -> list[Ratio]:
    """Return the ratios to the DataLoader and to decoding alone."""
    count = form.pick(IMAGES, PROCESSES * SHARD_IMAGES)
    images = f"--images={count}"
    node = {"cpus": PROCESSES + 1}  # one for the reader of the batches
    with (
        tempfile.TemporaryDirectory(prefix="ty-bench-") as name,
        form.stack(workers=1, worker=node) as stack,
    ):
        files = Path(name)
        for index in range(count):
            image = synthetic_images.encode(index, SIDE)
            (files / f"{index:05d}.jpg").write_bytes(image)

        def ours() -> float:
            record = stack.submit(LOOP, "--ray", images)
            _check_memory(record)
            return float(statistics.median(record["figures"]))

        def alone(way: str) -> float:
            return float(statistics.median(python(LOOP, f"--{way}={files}", images)["figures"]))

        streamed, loaded, decoded, in_ram = in_turn(
            form.rounds(ROUNDS),
            ours,
            lambda: alone("load"),
            lambda: alone("decode"),
            lambda: alone("ram"),
        )
    return [
        Ratio(
            name="P11 data feeding",
            ours=streamed,
            plain=loaded,
            unit="images/s",
            goal=0.8,
            at_most=False,
            note=f"decoded before, in memory: {statistics.median(in_ram):,.0f} images/s",
        ),
        Ratio(
            name="P11 limit",
            ours=streamed,
            plain=decoded,
            unit="images/s",
            goal=None,
            at_most=False,
        ),
    ]


def _check_memory(record: dict[str, Any]) -> None:
    first, second = record["largest_mb"]
    store = max(record["object_store_mb"])
    if second - first > GROWTH_MB or store > 2 * streaming.STREAM_BYTES / MB:
        raise FailedError(
            f"a process took {first:.0f} MB, then {second:.0f} MB; the object store {store:.0f} MB"
        )
