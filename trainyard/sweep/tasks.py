"""Runs points of a sweep as tasks of one Ray job, in reused worker processes.

    python -m trainyard.sweep.tasks JOB NUMBER:BUNDLE...

BUNDLE has the resources of a point, as JSON with Ray's resource names.
"""

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

import ray

from trainyard import figures
from trainyard.housekeeping import housekeeping
from trainyard.recorder import JOB_VARIABLE
from trainyard.store.objects import StorageError
from trainyard.sweep import result
from trainyard.tracking.job_record import JobRecord
from trainyard.tracking.run_folder import RUN_VARIABLE, STORAGE_VARIABLE

LONGEST_LINE = 64 * 1024
RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # Ray's other names


def options(bundle: dict[str, float]) -> dict[str, Any]:
    """Return a bundle as options of a task."""
    named = {RESOURCES[name]: amount for name, amount in bundle.items() if name in RESOURCES}
    rest = {name: amount for name, amount in bundle.items() if name not in RESOURCES}
    return {"num_cpus": 0, **named, "resources": rest}


class NumberedLines(io.TextIOBase):
    """A stream that puts a point's number before each line, and has a log without."""

    def __init__(self, out: TextIO, number: int, log: TextIO) -> None:
        super().__init__()
        self._out, self._number, self._log = out, number, log
        self._rest: list[str] = []  # of a line that has not ended
        self._held = 0

    def write(self, text: str) -> int:
        """Passes on whole lines, and text that is too long for one."""
        before, end, rest = text.rpartition("\n")
        if end:
            lines = "".join([*self._rest, before]).split("\n")
            self._out.write("".join(f"[{self._number}] {line}\n" for line in lines))
            self._log.write("".join(f"{line}\n" for line in lines))
            self._log.flush()
            self._rest, self._held = [], 0
        self._rest.append(rest)
        self._held += len(rest)
        if self._held > LONGEST_LINE:
            self.end()
        return len(text)

    def end(self) -> None:
        """Passes on an incomplete line."""
        if self._held:
            self.write("\n")

    def flush(self) -> None:
        """Flushes the stream below."""
        self._out.flush()


@ray.remote(max_retries=0)
def run_point(number: int, job: str, facts: dict[str, Any]) -> tuple[bool, dict[str, bytes]]:
    """Runs a point on any node with room, as a run of its own.

    `facts` are Ray's description of the job.

    Returns:
        Whether it was completed, and the files that no store has taken, by their keys.
    """
    # Not at the top: the driver needs no Hydra, and all points wait for it.
    from trainyard.sweep import point, points  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="trainyard-output-") as folder:
        log = (Path(folder) / "log").open("w", encoding="utf-8")
        out, errors = (NumberedLines(each, number, log) for each in (sys.stdout, sys.stderr))
        with log, redirect_stdout(out), redirect_stderr(errors):
            sent = points.load_points()
            given = sent.configs[number].hydra.overrides.task
            settings = dict(each.lstrip("+").partition("=")[::2] for each in given)
            facts["metadata"] = facts.get("metadata", {}) | {"settings": json.dumps(settings)}
            stored, files = bool(os.environ.get(STORAGE_VARIABLE)), dict[str, bytes]()
            run = recorded(f"{sent.sweep}-{number}", [*given], facts, Path(log.name))
            with run if stored else nullcontext(dict[str, int]()) as ended:
                try:
                    found = point.run(sent, number, job, None if stored else files)
                    ended["code"] = int(not found.completed)
                finally:
                    out.end()
                    errors.end()
        return found.completed, files


@contextmanager
def recorded(
    run: str, command: Sequence[str], facts: Mapping[str, Any], log: Path
) -> Iterator[dict[str, int]]:
    """Has the store know of a run within this process; the caller sets its exit `code`."""
    ended, before = {"code": 1}, dict(os.environ)
    output = log.parent / "output"
    output.mkdir()
    os.environ |= {RUN_VARIABLE: run, "TRAINYARD_OUTPUT": str(output)}
    record = JobRecord(os.environ[STORAGE_VARIABLE], run, command, facts, str(log))
    with housekeeping("the store has no record of this run"):
        record.begin({})
    try:
        yield ended
    finally:
        figures.finish()
        with housekeeping("the store does not have all of this run"):
            record.end(ended["code"], output, {})
        for name in (RUN_VARIABLE, "TRAINYARD_OUTPUT"):
            os.environ.pop(name)
            os.environ |= {name: before[name]} if name in before else {}


def main() -> None:
    """Runs the points of the command line, as many at once as the cluster has room for."""
    job, *asked = sys.argv[1:]
    ray.init()
    facts = json.loads(os.environ.get(JOB_VARIABLE, "{}"))
    running = {}
    for each in asked:
        text, _, bundle = each.partition(":")
        number = int(text)
        task = run_point.options(name=f"[{number}]", **options(json.loads(bundle)))
        running[task.remote(number, job, facts)] = number
    failed, all_points = [], len(running)
    while running:
        done, _ = ray.wait(list(running), num_returns=1)
        number = running.pop(done[0])
        try:
            completed, files = ray.get(done[0])
            for key, content in files.items():
                result.unstored().write(key, content)
        except (ray.exceptions.RayError, StorageError) as error:
            print(f"point {number}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)  # noqa: T201
            completed = False
        if not completed:
            failed.append(number)
        print(f"points: {all_points - len(running)} of {all_points} have ended", flush=True)  # noqa: T201
    if failed:
        sys.exit(f"points that failed: {', '.join(map(str, sorted(failed)))}")


if __name__ == "__main__":
    main()
