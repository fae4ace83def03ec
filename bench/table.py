"""Results as tables: on a terminal of 80 columns, and in docs/benchmarks.md."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich import box
from rich.table import Table

from bench.measure import Ratio, Skipped, Usage

COLUMNS = 80


def of_ratios(ratios: Sequence[Ratio]) -> Table:
    """Medians of both ways, their ratio and the verdict."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, width=COLUMNS)
    table.add_column("")
    for heading in ("ours", "plain"):
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
            ratio.unit,
            f"{ratio.value:.3f}",
            goal(ratio),
            ratio.verdict,
        )
    return table


def of_usages(usages: Sequence[Usage]) -> Table:
    """What idle parts take."""
    table = Table("idle", "CPU, % of a core", "memory, MB", box=box.SIMPLE)
    for usage in usages:
        table.add_row(usage.name, f"{usage.cpu_percent:.1f}", f"{usage.memory_mb:.0f}")
    return table


def markdown(
    ratios: Sequence[Ratio], usages: Sequence[Usage], skipped: Sequence[Skipped]
) -> list[str]:
    """The same as lines of Markdown, with the range of the figures of ours and their count."""
    lines = [
        "| figure | ours: median (range) of n | plain | ratio | goal | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for ratio in ratios:
        ours = number(statistics.median(ratio.ours))
        if len(ratio.ours) > 1:
            low, high = number(min(ratio.ours)), number(max(ratio.ours))
            ours += f" ({low} to {high}) of {len(ratio.ours)}"
        plain = f"{number(statistics.median(ratio.plain))} {ratio.unit}"
        cells = [ratio.name, ours, plain, f"{ratio.value:.3f}", goal(ratio), ratio.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    if notes := [f"- {ratio.name}: {ratio.note}" for ratio in ratios if ratio.note]:
        lines += ["", *notes]
    if usages:
        lines += ["", "| idle | CPU, % of one core | memory, MB |", "| --- | --- | --- |"]
        lines += [
            f"| {usage.name} | {usage.cpu_percent:.1f} | {usage.memory_mb:.0f} |"
            for usage in usages
        ]
    if skipped:
        lines += ["", "Not measured:", *(f"- {each.name}: {each.reason}" for each in skipped)]
    return lines


def number(figure: float) -> str:
    """A figure with three digits that count, or all before the point."""
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def goal(ratio: Ratio) -> str:
    """The bound as text; "" where there is none."""
    if ratio.goal is None:
        return ""
    return f"{'<=' if ratio.at_most else '>='} {ratio.goal:g}"
