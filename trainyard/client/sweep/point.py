"""A point of a sweep, and its outcome."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.packing import Bundle

ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")  # by Hydra's sweepers


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point."""

    number: int  # its place in the sweep, from 0
    overrides: tuple[str, ...]  # its own settings, as `optimizer.lr=0.1`
    identity: str  # the same for the same point of a later start
    folder: str  # its output folder, relative to the sweep's folder
    bundle: Bundle  # its request
    runtime_env: Path | None = None  # file of Ray's keys; None without one

    @property
    def label(self) -> str:
        """Its number and its overrides."""
        return " ".join((f"[{self.number}]", *self.overrides))


def settings(overrides: Sequence[str]) -> dict[str, str]:
    """Return the values of overrides by their names, as their user wrote them."""
    pairs = (each.lstrip("+").partition("=")[::2] for each in overrides)
    return {name: ESCAPED.sub(r"\1", value) for name, value in pairs}


def values(result: Any) -> dict[str, Any]:
    """Return the result of a point by names; a single value has the name `value`."""
    if isinstance(result, Mapping):
        return dict(result)
    return {} if result is None else {"value": result}


@dataclass(frozen=True, kw_only=True)
class PointOutcome:
    """The outcome of a point."""

    job: str = ""  # submission id; "" for a point that was not sent
    value: Any = None  # the result of its function
    error: str = ""  # one line; "" for a point that is done
    note: str = ""  # the parts that did not come along; "" if all did
