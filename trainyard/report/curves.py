"""Pictures of a run's epochs, and of a search's trials, from their records.

Others can write to the store of the records too: only finite numbers are drawn.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.tracking.run_folder import Goals, best, best_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
Points = tuple[list[int], list[float]]  # epochs from 1, and their figures

# The lines of two panels. Others of losses and accuracies join them.
LOSSES = {"loss": "training", "valid_loss": "validation"}
ACCURACIES = {"train_acc": "training", "valid_acc": "validation"}
TIME = ("epoch", "minutes", "step", "time")
MOST_PANELS = 6
MOST_TRIALS = 10  # with a colour and a name; the others are grey
FEW_EPOCHS = 60  # their points are marked
LARGEST = 1e30  # axes of larger figures overflow
LONGEST_NOTE = 80  # characters
MOST_NAMES = 2000  # of figures: anyone who can write to the store adds more
DPI = 110


@dataclass(frozen=True)
class Trial:
    """One trial of a search: its number, its sampled arguments, and a record per epoch."""

    name: str
    values: Mapping[str, Any]
    history: list[dict[str, Any]]


def of_run(name: str, config: Record, history: Sequence[Record], goals: Goals) -> bytes:
    """Return the figures of a run over its epochs, at least one, as a PNG."""
    panels = _panels(history)
    figure = _figure(max(1, min(len(panels), MOST_PANELS)))
    top = next(iter(best_first(history, goals)), 0)
    for axes, (title, lines) in zip(figure.axes, panels.items(), strict=False):
        for label, points in lines.items():
            often = len(points[0]) > max(1, len(history) / 2)
            if often or label in {"training", "validation", title}:
                shown = None if [*lines] == [title] else _short(label)
                axes.plot(*points, **_marker(points), label=shown)
            else:  # most jobs test once
                shown = f"{_short(label)}: {_shown(points[1][-1], title)}"
                axes.plot(*points, marker="*", markersize=14, linestyle="", label=shown)
        if best(history, goals) is not None and len(history) > 1:
            epoch = epoch_of(history[top], top)
            label = f"best {along(history[top])}: {epoch}"
            axes.axvline(epoch, color="grey", linestyle=":", label=label)
        _finish(axes, title, along(history[-1]))
        if axes.get_legend_handles_labels()[1]:
            for text in axes.legend(fontsize="small").get_texts():
                text.set_parse_math(False)
    left_out = len(panels) - MOST_PANELS
    more = f"; {left_out} more figures in metrics.jsonl" if left_out > 0 else ""
    figure.suptitle(f"{_about(name, config, history)}{more}", parse_math=False)
    return _png(figure)


def of_search(name: str, goals: Goals, trials: Sequence[Trial]) -> bytes:
    """Return the goal's figure, `valid_acc` or `valid_loss`, of all trials over epochs, as a PNG.

    At least one trial has an epoch.
    """
    figure = _figure(1, width=10)
    (axes,) = figure.axes
    varying = differing_names([trial.values for trial in trials])
    [key] = goals
    lines = [_points(key, trial.history) for trial in trials]
    tops = best_first([{key: best(trial.history, goals)} for trial in trials], goals)
    order = [index for index, figure in tops.items() if figure is not None]
    for place, index in enumerate(order):
        style: dict[str, Any] = {"linewidth": 1.2 if place else 3.0}
        if place < MOST_TRIALS:
            values = [f"{each} {_short(trials[index].values.get(each, '-'))}" for each in varying]
            style["label"] = ", ".join([trials[index].name, *values])
            style["zorder"] = 2.5 if place else 3.0
        else:
            style |= {"color": "lightgrey", "zorder": 2.0}
        axes.plot(*lines[index], **_marker(lines[index]), **style)
    title = "accuracy" if key.endswith("acc") else "loss"
    _finish(axes, title)
    notes = _data(record for trial in trials for record in trial.history)
    about = f"{name}: validation {title} of {len(order)} trials"
    axes.set_title(", ".join([about, *notes]), parse_math=False)
    more = len(order) - MOST_TRIALS
    heading = "best first" + (f"; {more} more in grey" if more > 0 else "")
    legend = figure.legend(title=heading, fontsize="small", loc="outside right upper")
    for text in legend.get_texts():
        text.set_parse_math(False)
    return _png(figure)


def differing_names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names whose values differ between rows; all names of a single row."""
    found = list(rows)
    names = dict.fromkeys(name for row in found for name in row)
    if len(found) < 2:
        return list(names)
    return [name for name in names if len({repr(row.get(name)) for row in found}) > 1]


def _panels(history: Sequence[Record]) -> dict[str, dict[str, Points]]:
    """Return the lines of each panel by name: losses, accuracies, then all other figures."""
    panels: dict[str, dict[str, Points]] = {"loss": {}, "accuracy": {}}
    names = (*LOSSES, *ACCURACIES, *(key for record in history for key in record))
    for key in itertools.islice(dict.fromkeys(names), MOST_NAMES):
        if key in TIME or not (points := _points(key, history))[0]:
            continue
        if key in LOSSES or key.endswith("_loss"):
            panels["loss"][LOSSES.get(key, key.removesuffix("_loss"))] = points
        elif key in ACCURACIES or key.endswith("_acc"):
            panels["accuracy"][ACCURACIES.get(key, key.removesuffix("_acc"))] = points
        else:
            panels.setdefault(key, {})[key] = points
    return {title: lines for title, lines in panels.items() if lines}


def _points(key: str, history: Sequence[Record]) -> Points:
    figures = {
        epoch_of(record, index): figure
        for index, record in enumerate(history)
        if (figure := number(record.get(key))) is not None
    }
    return list(figures), list(figures.values())


def epoch_of(record: Record, index: int) -> int:
    """Return the number of an epoch, from 1; or the step of a record that is none of an epoch."""
    if along(record) == "step":
        return int(record["step"])
    epoch = number(record.get("epoch"))
    return (index if epoch is None else int(epoch)) + 1


def along(record: Record) -> str:
    """Return what a record is of, an epoch or a step."""
    is_step = "epoch" not in record and number(record.get("step")) is not None
    return "step" if is_step else "epoch"


def number(value: Any) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < LARGEST else None  # false for NaN too


def _about(name: str, config: Record, history: Sequence[Record]) -> str:
    asked, minutes = config.get("epochs"), number(history[-1].get("minutes"))
    title = f"{name} ({_short(config['job'])})" if config.get("job") else name
    reached = epoch_of(history[-1], len(history) - 1)
    parts = [f"{title}\n{along(history[-1])} {reached}{f' of {_short(asked)}' if asked else ''}"]
    if minutes is not None:
        parts.append(f"{minutes * 60:.0f} s" if minutes < 3 else f"{minutes:.0f} min")
    return ", ".join([*parts, *_data(history)])


def _data(records: Iterable[Record]) -> list[str]:
    """Return the note of a run that did not have its real data set."""
    notes = (record["data"] for record in records if "data" in record)
    return [f"data: {str(note)[:LONGEST_NOTE]}" for note in notes][:1]


def _marker(points: Points) -> dict[str, Any]:
    return {"marker": "o", "markersize": 4} if len(points[0]) <= FEW_EPOCHS else {}


def _shown(figure: float, title: str) -> str:
    return f"{figure:.1%}" if title == "accuracy" else f"{figure:.4g}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)[:40]


def _finish(axes: Axes, title: str, over: str = "epoch") -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter  # noqa: PLC0415 - slow

    axes.set_title(_short(title), parse_math=False)
    axes.set_xlabel(over)
    axes.set_ylabel("correct (%)" if title == "accuracy" else _short(title), parse_math=False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))
    if title == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    first, last = axes.dataLim.intervalx
    axes.set_xlim(min(first, last) - 0.5, max(first, last) + 0.5)
    axes.grid(alpha=0.3)


def _figure(panels: int, width: float = 0) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow

    columns = min(panels, 2)
    rows = math.ceil(panels / columns)
    size = (width or 5 * columns + 1, 3.7 * rows + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    for place in range(panels):
        figure.add_subplot(rows, columns, place + 1)
    return figure


def _png(figure: Figure) -> bytes:
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DPI)
    return image.getvalue()
