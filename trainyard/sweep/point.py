"""Runs one point of a sweep on a node.

    python -m trainyard.sweep.point NUMBER JOB

The points are in the package `trainyard_sweep` (points.py). Without a store the results are files
next to the job's log, which Ray's dashboard serves.
"""

import logging
import os
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write

from trainyard.store import objects
from trainyard.sweep import points as all_points
from trainyard.sweep import result
from trainyard.sweep.points import Points, ScriptFunction
from trainyard.sweep.result import Result
from trainyard.tracking import run_folder


def run(points: Points, number: int, job: str, kept: dict[str, bytes] | None = None) -> Result:
    """Runs a point, and stores its result and its files; in `kept`, if that is given.

    Raises:
        StorageError: the store did not accept them.
    """
    # While the function runs: importing the signer of requests takes a quarter of a second.
    opening, url = ThreadPoolExecutor(1), os.environ.get(run_folder.STORAGE_VARIABLE)
    opened = opening.submit(objects.open_url, url) if url else opening.submit(result.unstored)
    opening.shutdown(wait=False)
    given = points.function
    function = given.find() if isinstance(given, ScriptFunction) else given
    Singleton.set_state(points.state)
    setup_globals()
    config = points.configs[number]
    with tempfile.TemporaryDirectory(prefix="trainyard-point-") as folder:
        # In a folder of this node: the user's may not exist here.
        output = Path(folder, str(config.hydra.sweep.dir).replace("..", "_").lstrip("/"))
        with read_write(config), open_dict(config):
            config.hydra.job.id = job
            config.hydra.sweep.dir = str(output)
        found = _called(function, points.context, config)
        # Only the point's own folder: other points' are next to it.
        most = result.MOST_BYTES if url else result.MOST_UNSTORED
        archive, left = result.pack(output / str(config.hydra.sweep.subdir), most)
        if left:
            found = replace(found, note=f"{found.note}; {left}".strip("; "))
        logging.getLogger("botocore").setLevel(logging.WARNING)  # Hydra sets everything to INFO
        record_key, archive_key = result.keys(points.sweep, number, job)
        write = opened.result().write if kept is None else kept.__setitem__
        write(archive_key, archive)
        write(record_key, result.write(found))  # last: the point has ended
    return found


def _called(function: TaskFunction, context: HydraContext, config: DictConfig) -> Result:
    try:
        ended: JobReturn = run_job(
            task_function=function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=context,
        )
        if ended.status == JobStatus.COMPLETED:
            value, note = result.as_json(ended.return_value)
            return Result(completed=True, value=value, note=note)
        error: BaseException = ended._return_value
    except BaseException as raised:
        error = raised
    if isinstance(error, SystemExit) and not error.code:
        return Result(completed=True)
    if isinstance(error, SystemExit):
        print(error.code, file=sys.stderr)  # noqa: T201 - as Python does
        return Result(completed=False, error=f"exit: {error.code}")
    traceback.print_exception(error)
    return Result(completed=False, error=f"{type(error).__name__}: {error}".split("\n")[0])


def main() -> None:
    """Runs the point of the command line."""
    number, job = int(sys.argv[1]), sys.argv[2]
    if not run(all_points.load_points(), number, job).completed:
        sys.exit(1)


if __name__ == "__main__":
    main()
