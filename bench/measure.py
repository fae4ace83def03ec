"""Times two ways of doing the same, in turn, and keeps what is needed to judge the ratio."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One measured ratio.

    Attributes:
        name: as docs/benchmarks.md names it.
        ours: figures of ours, in `unit`.
        plain: figures of the plain way, in the same run.
        unit: what the figures are.
        goal: bound of the ratio of the medians.
        at_most: True when smaller is better, False when the goal is a lower bound.
        note: what the reader has to know.
    """

    name: str
    ours: list[float]
    plain: list[float]
    unit: str
    goal: float
    at_most: bool = True
    note: str = ""

    @property
    def value(self) -> float:
        """Median of ours over the median of the plain way."""
        return statistics.median(self.ours) / statistics.median(self.plain)

    @property
    def met(self) -> bool:
        """True when the goal is met."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def record(self) -> dict[str, Any]:
        """Everything as JSON."""
        return asdict(self) | {"ratio": self.value, "met": self.met}


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a part of a stack takes of the machine while nothing is asked of it.

    Attributes:
        name: of the part.
        cpu_percent: of one core.
        memory_mb: in MB (10^6 bytes).
        note: what the reader has to know.
    """

    name: str
    cpu_percent: float
    memory_mb: float
    note: str = ""

    def record(self) -> dict[str, Any]:
        """Everything as JSON."""
        return asdict(self)


class SkippedError(Exception):
    """A benchmark cannot run on this machine; the message says why."""


def in_turn(
    rounds: int, ours: Callable[[], float], plain: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Figures of both ways, A B A B, after one round that is not counted."""
    ours()
    plain()
    pairs = [(ours(), plain()) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def seconds(command: Sequence[str], **options: Any) -> float:
    """Wall time of a command.

    Raises:
        RuntimeError: it failed; a fast failure is no result.
    """
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    took = time.perf_counter() - begun
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return took


def peak_memory_mb(command: Sequence[str], **options: Any) -> float:
    """Largest resident set of a command, in MB (10^6 bytes)."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed")
    return usage.ru_maxrss * 1024 / 1e6


def machine() -> str:
    """One line on the machine and how busy it was."""
    memory = psutil.virtual_memory().total / 2**30
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"{os.cpu_count()} CPUs, {memory:.0f} GiB, {platform.platform(terse=True)}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}, {limit} files"
    )
