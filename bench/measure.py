"""Ratios, and the child processes that give their figures."""

import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
TIMEOUT_SECONDS = 900.0  # after which a child is killed; the longest takes a third of it
LAST_LINES = 15  # of each stream of a child that failed


class SkippedError(Exception):
    """A benchmark cannot run on this machine; the message says why."""


class FailedError(Exception):
    """A benchmark gave no figures; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One measured ratio.

    Attributes:
        name: as docs/benchmarks.md names it.
        ours: figures of ours, in `unit`.
        plain: figures of the plain way, in the same run.
        unit: unit of the figures.
        alone: figures of Ray Train without a line of ours, in the same run; () where there is none.
        goal: bound of the ratio of the medians; None where it is only reported.
        at_most: True when smaller is better, False when the goal is a lower bound.
        note: a hint for the reader.
    """

    name: str
    ours: list[float]
    plain: list[float]
    alone: Sequence[float] = ()
    unit: str
    goal: float | None
    at_most: bool = True
    note: str = ""

    @property
    def value(self) -> float:
        """Median of ours over the median of the plain way."""
        return statistics.median(self.ours) / statistics.median(self.plain)

    @property
    def verdict(self) -> str:
        """Return met or missed, by figures that are not rounded, or "no goal"."""
        if self.goal is None:
            return "no goal"
        met = self.value <= self.goal if self.at_most else self.value >= self.goal
        return "met" if met else "missed"


@dataclass(frozen=True, kw_only=True)
class Usage:
    """CPU and memory of a part of a stack while it is idle.

    Attributes:
        name: of the part.
        cpu_percent: of one core.
        memory_mb: in MB (10^6 bytes).
    """

    name: str
    cpu_percent: float
    memory_mb: float


@dataclass(frozen=True)
class Skipped:
    """A benchmark that cannot be measured on this machine.

    Attributes:
        name: the benchmark's.
        reason: why not, and a remedy.
    """

    name: str
    reason: str


Result = Ratio | Usage | Skipped


@dataclass(frozen=True, kw_only=True)
class Done:
    """A child that ended well.

    Attributes:
        stdout: its output.
        seconds: from its start to its end.
        processor: seconds of processors, with those of its own children.
        peak_mb: its largest resident set, in MB (10^6 bytes).
    """

    stdout: str
    seconds: float
    processor: float
    peak_mb: float


def in_turn(rounds: int, *ways: Callable[[], float]) -> list[list[float]]:
    """Return the figures of each way, measured in the order A B A B.

    The first round warms up. It counts only if it is the only one.
    """
    taken = [[way() for way in ways] for _ in range(rounds + 1)]
    return [list(figures) for figures in zip(*(taken[1:] or taken), strict=True)]


def run(command: Sequence[str | Path], **options: Any) -> Done:
    """Run a child to its end.

    Args:
        command: its command line.
        options: of Popen, such as env and cwd.

    Raises:
        FailedError: it failed, with its last lines; a fast failure is not a result.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, **options
        )
        timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
        took = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        said = (out.read(), err.read())
    if process.returncode != 0:
        late = f" after {TIMEOUT_SECONDS:.0f} s" if took >= TIMEOUT_SECONDS else ""
        raise failed(command, f"ended with {process.returncode}{late}", *said)
    spent = usage.ru_utime + usage.ru_stime
    memory = usage.ru_maxrss * 1024 / 1e6
    return Done(stdout=said[0], seconds=took, processor=spent, peak_mb=memory)


def failed(command: Sequence[str | Path], what: str, *said: str) -> FailedError:
    """Return the error of a child: its command, what went wrong, and its last lines."""
    lines = [line for text in said for line in text.rstrip().splitlines()[-LAST_LINES:]]
    return FailedError("\n  ".join([f"{' '.join(map(str, command))} {what}", *lines]))


def record(command: Sequence[str | Path], **options: Any) -> dict[str, Any]:
    """Run a child that prints figures as one JSON object, and return the object.

    Raises:
        FailedError: it failed, or printed no figures or more than once.
    """
    done = run(command, **options)
    # Under Ray the line begins with the name of the worker.
    found = re.findall(r'\{"figures": .*\}', done.stdout)
    if len(found) != 1:
        raise failed(command, f"printed {len(found)} lines of figures, not one", done.stdout)
    figures: dict[str, Any] = json.loads(found[0])
    return figures


def python(*arguments: str | Path, **variables: str) -> dict[str, Any]:
    """Run a loop of this folder in a plain process of one thread, and return its figures."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | variables
    return record([sys.executable, *arguments], env=environment, cwd=ROOT)


def machine() -> str:
    """Return a line on the machine and its load."""
    memory = psutil.virtual_memory().total / 2**30
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"{os.cpu_count()} CPUs, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}, "
        f"{limit} open files at most"
    )
