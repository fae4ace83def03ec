"""A point of a sweep, and its outcome."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.client.feasibility import Bundle

ESCAPED = re.compile(r"\\([\\()\[\]{}:=, \t])")  # by Hydra's sweepers


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point.

    Attributes:
        number: its place in the sweep, from 0.
        overrides: its own settings, as `optimizer.lr=0.1`.
        identity: the same for the same point of a later start.
        folder: its output folder, relative to the sweep's folder.
        bundle: its request.
        runtime_env: file of Ray's keys; None without one.
    """

    number: int
    overrides: tuple[str, ...]
    identity: str
    folder: str
    bundle: Bundle
    runtime_env: Path | None = None

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
    """The outcome of a point.

    Attributes:
        job: submission id; "" for a point that was not sent.
        value: the result of its function.
        error: one line; "" for a point that is done.
        note: the parts that did not come along; "" if all did.
    """

    job: str = ""
    value: Any = None
    error: str = ""
    note: str = ""
