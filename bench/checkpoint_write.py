"""The job of P8: writes checkpoints by trainyard/resume/checkpoints.py and by boto3, in turn.

Prints the seconds of each way as JSON. Run as a file: it imports nothing of bench.
"""

import functools
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

MB = 1_000_000
# Name and the sizes of the files of one checkpoint.
CASES = {
    "1 MB": [MB],
    "64 MB": [64 * MB],
    "512 MB": [512 * MB],
    "200 x 100 kB": [MB // 10] * 200,
}


def main() -> None:
    """Run the rounds in a worker of Ray Train."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from trainyard import ray_train
    from trainyard.tracking.runs import Run

    ray_train.connect()
    run = Run(os.environ["TRAINYARD_STORAGE_URL"], os.environ["TRAINYARD_RUN"])
    TorchTrainer(
        measure,
        train_loop_config={"rounds": int(sys.argv[1]), "cases": sys.argv[2:]},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(resources_per_worker={"CPU": 1}),
        run_config=ray_train.run_config(run, 0),
    ).fit()


def measure(config: dict[str, Any]) -> None:
    """Measure the cases; one round of each is not counted, unless it is the only one."""
    import boto3

    client = boto3.client("s3", region_name="us-east-1")
    figures: dict[str, dict[str, list[float]]] = {}
    for case in config["cases"]:
        sizes = CASES[case]
        ways = {"ours": _report, "boto3": functools.partial(_boto3, client), "disk": _disk}
        rounds = [
            {name: _with_files(sizes, way) for name, way in ways.items()}
            for _ in range(1 + config["rounds"])
        ]
        figures[case] = {name: [one[name] for one in rounds[1:] or rounds] for name in ways}
    print(json.dumps({"figures": figures}), flush=True)


def _with_files(sizes: list[int], way: Any) -> float:
    folder = Path.cwd() / "files"
    folder.mkdir()
    try:
        for number, size in enumerate(sizes):
            with (folder / f"part{number:03d}").open("wb") as file:
                file.write(os.urandom(size))
                file.flush()
                os.fsync(file.fileno())  # or the disk is still busy while the clock runs
        return float(way(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _report(folder: Path) -> float:
    """Measure from the report until the checkpoint can be restored; then check that it can."""
    from ray import train

    from trainyard.resume import checkpoint_files, checkpoints
    from trainyard.store import objects

    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = threading.Event()
    ended: list[float] = []

    def stored() -> None:
        ended.append(time.perf_counter())
        done.set()

    begun = time.perf_counter()
    checkpoints.report({}, folder, {}, stored=stored)
    if not done.wait(300):
        raise TimeoutError("the checkpoint was not stored")
    storage = train.get_context().get_storage()
    run = objects.open_folder(storage.storage_filesystem, storage.experiment_fs_path)
    name, _ = checkpoint_files.valid(run)[0]
    target = checkpoints.new_folder()
    checkpoint_files.fetch(run, name, target)
    for part, content in contents.items():
        if (target / part).read_bytes() != content:
            raise ValueError(f"{part} came back changed")
    shutil.rmtree(target)
    return ended[0] - begun


def _boto3(client: Any, folder: Path) -> float:
    """Measure upload_file of each file, with its own defaults."""
    bucket = os.environ["TRAINYARD_STORAGE_URL"].removeprefix("s3://")
    begun = time.perf_counter()
    for path in folder.iterdir():
        client.upload_file(str(path), bucket, f"plain/{path.name}")
    return time.perf_counter() - begun


def _disk(folder: Path) -> float:
    """Measure the limit: the same bytes to a file system of this machine."""
    target = Path.cwd() / "copy"
    target.mkdir()
    begun = time.perf_counter()
    for path in folder.iterdir():
        with path.open("rb") as source, (target / path.name).open("wb") as copy:
            shutil.copyfileobj(source, copy, MB)
            copy.flush()
            os.fsync(copy.fileno())
    took = time.perf_counter() - begun
    shutil.rmtree(target)
    return took


if __name__ == "__main__":
    main()
