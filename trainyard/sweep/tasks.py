"""Runs points of a sweep as tasks of one Ray job, in reused worker processes.

    python -m trainyard.sweep.tasks JOB NUMBER:BUNDLE...

BUNDLE has the resources of a point, as JSON with Ray's resource names.
"""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

import ray

LONGEST_LINE = 64 * 1024
RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # Ray's other names


def options(bundle: dict[str, float]) -> dict[str, Any]:
    """Return a bundle as options of a task."""
    named = {RESOURCES[name]: amount for name, amount in bundle.items() if name in RESOURCES}
    rest = {name: amount for name, amount in bundle.items() if name not in RESOURCES}
    return {"num_cpus": 0, **named, "resources": rest}


class NumberedLines(io.TextIOBase):
    """A stream that puts a point's number before each line."""

    def __init__(self, out: TextIO, number: int) -> None:
        super().__init__()
        self._out, self._number = out, number
        self._rest: list[str] = []  # of a line that has not ended
        self._held = 0

    def write(self, text: str) -> int:
        """Passes on whole lines, and text that is too long for one."""
        before, end, rest = text.rpartition("\n")
        if end:
            lines = "".join([*self._rest, before]).split("\n")
            self._out.write("".join(f"[{self._number}] {line}\n" for line in lines))
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
def run_point(number: int, job: str) -> bool:
    """Runs a point on any node with room; returns whether it was completed."""
    # Not at the top: the driver needs no Hydra, and all points wait for it.
    from trainyard.sweep import point, points  # noqa: PLC0415

    out, errors = (cast(TextIO, NumberedLines(each, number)) for each in (sys.stdout, sys.stderr))
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            return point.run(points.load_points(), number, job).completed
    finally:
        for each in (out, errors):
            cast(NumberedLines, each).end()


def main() -> None:
    """Runs the points of the command line, as many at once as the cluster has room for."""
    job, *asked = sys.argv[1:]
    ray.init()
    running = {}
    for each in asked:
        text, _, bundle = each.partition(":")
        number = int(text)
        task = run_point.options(name=f"[{number}]", **options(json.loads(bundle)))
        running[task.remote(number, job)] = number
    failed, all_points = [], len(running)
    while running:
        done, _ = ray.wait(list(running), num_returns=1)
        number = running.pop(done[0])
        try:
            completed = ray.get(done[0])
        except ray.exceptions.RayError as error:
            print(f"point {number}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)  # noqa: T201
            completed = False
        if not completed:
            failed.append(number)
        print(f"points: {all_points - len(running)} of {all_points} have ended", flush=True)  # noqa: T201
    if failed:
        sys.exit(f"points that failed: {', '.join(map(str, sorted(failed)))}")


if __name__ == "__main__":
    main()
