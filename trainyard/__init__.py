"""The library of jobs, and the command `train` in `client/`.

Each job's upload has this package without `access/`, `client/` and `quickstart/` (`.rayignore`).
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn

COMMANDS = ("submit", "runs", "show", "logs", "stop", "pull")  # see trainyard/client/api.py


def load(
    run: str | Path, folder: str | Path = "results", network: nn.Module | None = None
) -> nn.Module:
    """Return a run's trained model; see `trainyard.report.results.load`."""
    from trainyard.report import results  # noqa: PLC0415 - slow: every import of this package would wait

    return results.load(run, folder, network)


def log(
    figures: Mapping[str, Any] | None = None, /, *, step: int | None = None, **more: Any
) -> None:
    """Log figures of a job: `trainyard.log(acc=0.9, step=3)`, in any of its processes.

    `train runs`, `train show` and the page have them. It never waits for the store, and no error in
    it ends the program.

    Args:
        figures: numbers by name, where a name is none of Python's: `{"loss/valid": 0.1}`.
        step: of this row; one more than that of the last row, if it is not given.
        **more: numbers by name, also as arrays or tensors with one value.
    """
    from trainyard import figures as logged  # noqa: PLC0415 - as above

    found = {**(figures or {}), **more}
    row_step = found.pop("step", None) if step is None else step
    logged.keep(lambda kept: kept.add(found, row_step))


def log_image(name: str, image: Any, *, step: int | None = None) -> None:
    """Log a picture: an array, a tensor, an image of PIL or a figure of matplotlib.

    It belongs to the step of the last figures, if no other is given; see docs/train.md.
    """
    from trainyard import figures  # noqa: PLC0415 - as above

    figures.keep(lambda kept: kept.show(name, image, step))


def log_text(name: str, text: str, *, step: int | None = None) -> None:
    """Log a text as `log_image` does a picture."""
    log_image(name, str(text), step=step)


def goal(figure: str, mode: str) -> None:
    """Say which values of a figure are best, the most or the least: `goal("loss/valid", "min")`.

    `mode` is `max` or `min`. The first goal of a job decides which of its steps is the best.
    """
    from trainyard import figures  # noqa: PLC0415 - as above

    figures.keep(lambda kept: kept.goal(figure, mode))


def __getattr__(name: str) -> Any:
    """The commands as functions, such as `trainyard.runs`, which nodes lack; a notebook's run."""
    if name in ("run", "finish"):
        with suppress(ModuleNotFoundError):
            return getattr(importlib.import_module(f"{__name__}.client.notebook"), name)
        return lambda *_, **__: None  # a job is a run already
    if name in COMMANDS:
        return getattr(importlib.import_module(f"{__name__}.client.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
