"""The report at a sweep's end: a table by the metric, a picture, the points that failed."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.access import users_file
from trainyard.access.terminal import clean
from trainyard.client.console import print_table, say
from trainyard.client.errors import ClientError
from trainyard.client.sweep.point import Point, PointOutcome, settings, values
from trainyard.client.sweep.records import PICTURE, TABLE, Record
from trainyard.json_values import number
from trainyard.report import curves
from trainyard.tracking.run_folder import best_first

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINT, ERROR = "point", "error"
OURS = {POINT, ERROR}
NOT_ENDED = "not ended yet: run the same command again"
WIDTH_INCHES, ROW_INCHES = 9, 0.3
LEAST_ROWS, MOST_ROWS = 4, 40
LONGEST_VALUE = 30  # characters in the picture

Ended = tuple[Point, PointOutcome]


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
            others.append((point, PointOutcome(job=record.job, value=record.value, error=error)))
    return [*ended, *others]


def print_report(ended: Sequence[Ended], folder: Path, metric: str | None, mode: str) -> str:
    """Prints the table and the failures, and writes table and picture to the sweep's folder.

    It is sorted by the metric, else by the first column with numbers, which is returned; `max` has
    the largest first.

    Raises:
        ClientError: the folder cannot be written.
    """
    rows = [_values(outcome) for _, outcome in ended]
    found = (name for row in rows for name, value in row.items() if number(value) is not None)
    by = metric or next(found, "")
    order = best_first(rows, {by: mode})
    measured = [(ended[at][0], value) for at, value in order.items() if value is not None]
    taken = OURS.union(*(settings(point.overrides) for point, _ in ended))
    table = [_row(point, outcome, taken) for point, outcome in map(ended.__getitem__, order)]
    columns = [key for key in dict.fromkeys(key for row in table for key in row) if key != ERROR]
    if any(ERROR in row for row in table):
        columns.append(ERROR)
    shown = [{key: _short(value) for key, value in row.items()} for row in table]
    print_table(shown, columns, as_json=False)
    written = io.StringIO()
    sheet = csv.DictWriter(written, columns)
    sheet.writeheader()
    sheet.writerows(table)
    try:
        users_file.replace(folder / TABLE, written.getvalue().encode())
        if measured:
            users_file.replace(folder / PICTURE, _picture(measured, by))
    except OSError as error:
        raise ClientError(
            f"cannot write the table to {folder} ({error.strerror}): make room there, then run "
            "the same command again; the points that are done stay done"
        ) from None
    say(f"table: {folder / TABLE}" + (f"; picture: {folder / PICTURE}" if measured else ""))
    if measured:
        told = "" if metric else ": hydra.launcher.metric and direction choose another"
        say(f"the best has the {'most' if mode == 'max' else 'least'} {clean(by)}{told}")
    return by


def _row(point: Point, outcome: PointOutcome, taken: set[str]) -> dict[str, Any]:
    """Return a row; a setting or result with a name that is taken has a column of its own."""
    given, found = settings(point.overrides), _values(outcome)
    row: dict[str, Any] = {POINT: point.number}
    row |= {f"{key} (setting)" if key in OURS else key: each for key, each in given.items()}
    row |= {f"{key} (result)" if key in taken else key: each for key, each in found.items()}
    return row | {ERROR: outcome.error} if outcome.error else row


def _values(outcome: PointOutcome) -> dict[str, Any]:
    return {} if outcome.error else values(outcome.value)


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _figure() -> type[Figure]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow

    return Figure


def _picture(measured: Sequence[tuple[Point, float]], by: str) -> bytes:
    """Return a PNG of the best points with the settings that differ between points."""
    varying = curves.differing_names(settings(point.overrides) for point, _ in measured)
    shown = measured[:MOST_ROWS]
    height = 1 + ROW_INCHES * max(len(shown), LEAST_ROWS)
    figure = _figure()(figsize=(WIDTH_INCHES, height), layout="constrained")
    axes = figure.subplots()
    # Dots, since bars begin at 0, where accuracies of 97% and 98% look alike.
    axes.plot([value for _, value in shown], range(len(shown)), "o")
    place: dict[str, Any] = {"textcoords": "offset points", "xytext": (8, 0), "va": "center"}
    for row, (_, value) in enumerate(shown):
        axes.annotate(f"{value:.5g}", (value, row), fontsize="small", **place)
    names = [_name(point, varying) for point, _ in shown]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.margins(x=0.15)  # for the values
    axes.grid(alpha=0.3)
    axes.set_xlabel(by, parse_math=False)
    best = f"best {len(shown)} of " if len(shown) < len(measured) else ""
    axes.set_title(f"{by} of {best}{len(measured)} points, best first", parse_math=False)
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=120)
    return written.getvalue()


def _name(point: Point, varying: Sequence[str]) -> str:
    given = settings(point.overrides)
    values = (f"{name}={given[name][:LONGEST_VALUE]}" for name in varying if name in given)
    return " ".join((f"[{point.number}]", *values))
