"""The report at a sweep's end: a table by the metric, a picture, the points that failed."""

from __future__ import annotations

import csv
import io
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainyard.client.console import print_table, say
from trainyard.client.errors import ClientError
from trainyard.client.sweep.point import Outcome, Point
from trainyard.client.sweep.records import PICTURE, TABLE, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ERROR = "error"
NOT_ENDED = "not ended yet: run the same command again"
VALUE = "value"  # the column of a function that returns one number
WIDTH_INCHES, ROW_INCHES, LEAST_ROWS = 8, 0.35, 4

Ended = tuple[Point, Outcome]


def prepare() -> None:
    """Imports the library for the picture, half a second's work, while the points run."""
    threading.Thread(target=_figure, name="matplotlib", daemon=True).start()


def with_others(ended: Sequence[Ended], records: Mapping[str, Record]) -> list[Ended]:
    """Return the points of a batch, and the sweep's points of other batches and starts."""
    mine = {point.identity for point, _ in ended}
    others = []
    for identity, record in records.items():
        if identity not in mine:
            error = record.error or ("" if record.done else NOT_ENDED)
            point = Point(
                number=record.number,
                overrides=record.overrides,
                identity=identity,
                folder=record.folder,
                bundle={},
            )
            others.append((point, Outcome(job=record.job, value=record.value, error=error)))
    return [*ended, *others]


def tell(ended: Sequence[Ended], folder: Path, metric: str | None, *, maximize: bool) -> None:
    """Prints the table and the failures, and writes table and picture to the sweep's folder.

    Args:
        ended: the points.
        folder: of the sweep.
        metric: the column to sort by; None for the first with numbers.
        maximize: the largest is the best.

    Raises:
        ClientError: the folder cannot be written.
    """
    by = metric or next((key for _, o in ended for key, v in _values(o).items() if _finite(v)), "")
    best_first = sorted(ended, key=lambda each: _rank(_values(each[1]).get(by), maximize=maximize))
    table = [_row(point, outcome) for point, outcome in best_first]
    columns = [key for key in dict.fromkeys(key for row in table for key in row) if key != ERROR]
    if any(ERROR in row for row in table):
        columns.append(ERROR)
    shown = [{key: _short(value) for key, value in row.items()} for row in table]
    print_table(shown, columns, as_json=False)
    written = io.StringIO()
    sheet = csv.DictWriter(written, columns)
    sheet.writeheader()
    sheet.writerows(table)
    bars = [
        (point.label, float(cast(float, value)))
        for point, outcome in best_first
        if _finite(value := _values(outcome).get(by))
    ]
    try:
        _replace(folder / TABLE, written.getvalue().encode())
        if bars:
            _replace(folder / PICTURE, _picture(bars, by))
    except OSError as error:
        raise ClientError(
            f"cannot write the table to {folder} ({error.strerror}): make room there, then run "
            "the same command again; the points that are done stay done"
        ) from None
    say(f"table: {folder / TABLE}" + (f"; picture: {folder / PICTURE}" if bars else ""))


def _row(point: Point, outcome: Outcome) -> dict[str, Any]:
    overrides = dict(each.lstrip("+").partition("=")[::2] for each in point.overrides)
    row = {"point": point.number, **overrides, **_values(outcome)}
    return row | {ERROR: outcome.error} if outcome.error else row


def _values(outcome: Outcome) -> dict[str, Any]:
    """The result of a point, by the names of columns."""
    if outcome.error or outcome.value is None:
        return {}
    if isinstance(outcome.value, Mapping):
        return dict(outcome.value)
    return {VALUE: outcome.value}


def _finite(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _rank(value: Any, *, maximize: bool) -> float:
    if not _finite(value):
        return math.inf
    return -value if maximize else float(value)


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _figure() -> type[Figure]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow

    return Figure


def _picture(bars: Sequence[tuple[str, float]], by: str) -> bytes:
    height = 1 + ROW_INCHES * max(len(bars), LEAST_ROWS)
    figure = _figure()(figsize=(WIDTH_INCHES, height), layout="constrained")
    axes = figure.subplots()
    names, values = zip(*reversed(bars), strict=True)
    axes.barh(range(len(names)), values)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel(by)
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=120)
    return written.getvalue()


def _replace(path: Path, content: bytes) -> None:
    part = path.with_suffix(".part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
