"""P19: MB/s of `train pull` of a checkpoint, next to boto3; and a pull that finds nothing new.

Ours compares the sha256 of each file with the manifest and names it when it is whole; boto3 is
`download_file` with its defaults.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path

from bench import measure
from bench.form import Form
from bench.measure import Ratio, in_turn
from bench.scratch import TRAIN
from trainyard.client import outputs
from trainyard.client.pull.transfer import Transfer
from trainyard.client.store import open_store
from trainyard.resume import checkpoint_files
from trainyard.store.objects import open_url
from trainyard.tracking.runs import Run

ROUNDS = 5
MB = 1_000_000
SIZE_MB = 500
RUN = "pulled"
NAME = "checkpoint_000001-0000"
FILE = "checkpoint.pt"
AGAIN_S = 1.0  # goal of a pull that finds nothing new, with the start of the command


def run(form: Form) -> list[Ratio]:
    """Return the ratios."""
    size = form.pick(SIZE_MB, 5)
    with form.stack() as stack, tempfile.TemporaryDirectory(prefix="ty-pull-") as name:
        folder = Path(name)
        file = stack.outputs_file(folder)
        found = outputs.read(None, file)
        _store_run(found, folder, size)
        s3, bucket = stack.s3()

        def ours() -> float:
            shutil.rmtree(folder / "results", ignore_errors=True)
            os.sync()  # or the disk is still busy while the clock runs
            begun = time.perf_counter()
            Transfer(open_store(found), RUN, folder / "results" / RUN).run()
            return size / (time.perf_counter() - begun)

        def plain() -> float:
            (folder / "plain").unlink(missing_ok=True)
            os.sync()
            begun = time.perf_counter()
            s3.download_file(bucket, f"{RUN}/{NAME}/{FILE}", str(folder / "plain"))
            return size / (time.perf_counter() - begun)

        mine, theirs = in_turn(form.rounds(ROUNDS), ours, plain)
        command: list[str | Path] = [
            TRAIN,
            "pull",
            RUN,
            "--outputs",
            file,
            "--to",
            folder / "results",
        ]
        [again] = in_turn(form.rounds(ROUNDS), lambda: measure.run(command).seconds)
    return [
        Ratio(name="P19 pull", ours=mine, plain=theirs, unit="MB/s", goal=0.9, at_most=False),
        Ratio(name="P19 nothing new", ours=again, plain=[AGAIN_S], unit="s", goal=1.0),
    ]


def _store_run(found: outputs.StackOutputs, folder: Path, size: int) -> None:
    """Store a run with one checkpoint of so many MB."""
    # The training package reads them there.
    os.environ.update(
        AWS_ENDPOINT_URL=found.object_store_endpoint,
        AWS_ACCESS_KEY_ID=found.access_key,
        AWS_SECRET_ACCESS_KEY=found.secret_key,
    )
    files = folder / "files"
    files.mkdir()
    (files / FILE).write_bytes(os.urandom(size * MB))
    Run(found.storage_url, RUN).start({"epochs": 1})
    checkpoint_files.store(open_url(f"{found.storage_url}/{RUN}"), NAME, files, {"file": FILE})
    shutil.rmtree(files)
