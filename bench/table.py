"""Results as tables: on a terminal of 80 columns, and in docs/benchmarks.md."""

import statistics
from collections.abc import Sequence

from rich import box
from rich.table import Table

from bench.measure import Ratio, Result, Usage

COLUMNS = 80


def of_ratios(ratios: Sequence[Ratio]) -> Table:
    """Return a table of the medians of all ways, their ratio and the verdict."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, width=COLUMNS)
    table.add_column("")
    for heading in ("ours", "plain", "Ray"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for heading in ("ratio", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for ratio in ratios:
        table.add_row(
            ratio.name,
            number(statistics.median(ratio.ours)),
            number(statistics.median(ratio.plain)),
            _alone(ratio),
            ratio.unit,
            f"{ratio.value:.3f}",
            goal(ratio),
            ratio.verdict,
        )
    return table


def of_usages(usages: Sequence[Usage]) -> Table:
    """Return a table of the usage of idle parts."""
    table = Table("idle", "CPU, % of a core", "memory, MB", box=box.SIMPLE)
    for usage in usages:
        table.add_row(usage.name, f"{usage.cpu_percent:.1f}", f"{usage.memory_mb:.0f}")
    return table


def markdown(measured: Sequence[tuple[str, Result]]) -> list[str]:
    """Return the same as lines of Markdown, with the range of the figures of ours and their count.

    Args:
        measured: when and at which commit, and the result.
    """
    lines = [
        "| figure | ours: median (range) of n | plain | Ray alone | ratio | goal | | measured |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    notes, usages, skipped = [], [], []
    for when, result in measured:
        if isinstance(result, Ratio):
            lines.append(_row(result, when))
            if result.note:
                notes.append(f"- {result.name}: {result.note}")
        elif isinstance(result, Usage):
            cells = (f"{result.cpu_percent:.1f}", f"{result.memory_mb:.0f}", when)
            usages.append(f"| {result.name} | {' | '.join(cells)} |")
        else:
            skipped.append(f"- {result.name}: {result.reason} ({when})")
    if notes:
        lines += ["", *notes]
    if usages:
        lines += ["", "| idle | CPU, % of one core | memory, MB | measured |"]
        lines += ["| --- | --- | --- | --- |", *usages]
    if skipped:
        lines += ["", "Not measured:", *skipped]
    return lines


def _row(ratio: Ratio, when: str) -> str:
    ours = number(statistics.median(ratio.ours))
    if len(ratio.ours) > 1:
        low, high = number(min(ratio.ours)), number(max(ratio.ours))
        ours += f" ({low} to {high}) of {len(ratio.ours)}"
    plain = f"{number(statistics.median(ratio.plain))} {ratio.unit}"
    found = (f"{ratio.value:.3f}", goal(ratio), ratio.verdict, when)
    return f"| {' | '.join((ratio.name, ours, plain, _alone(ratio), *found))} |"


def _alone(ratio: Ratio) -> str:
    return number(statistics.median(ratio.alone)) if ratio.alone else ""


def number(figure: float) -> str:
    """Return a figure with three significant digits, or all before the point."""
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def goal(ratio: Ratio) -> str:
    """Return the bound as text, "" without one."""
    if ratio.goal is None:
        return ""
    return f"{'<=' if ratio.at_most else '>='} {ratio.goal:g}"
