"""`python -m bench [P1 P5 …]`: a table on the terminal, all figures as JSON in bench/results/."""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measure import Ratio, SkippedError, Usage, machine

MODULES = (
    "p1_p3_cold_up_and_destroy",
    "p1_p3_docker",
    "p2_no_op_up",
    "p4_p12_lambda",
    "p5_submit",
    "p6_throughput",
    "p7_two_workers",
    "p8_checkpoints",
    "p9_stall",
    "p10_resume",
    "p11_data_feeding",
    "p16_autoscaling",
    "p17_dev",
    "p19_pull",
    "p20_chargpt",
    "p21_sweep",
)
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run the chosen benchmarks; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="P1", help="only these (all)")
    names = {name.lower() for name in parser.parse_args().names}
    chosen = [m for m in MODULES if not names or names & set(m.split("_"))]
    line = machine()
    console = Console()
    console.print(line)
    found: list[Ratio | Usage] = []
    skipped: dict[str, str] = {}
    for module in chosen:
        with console.status(f"{module} ..."):
            try:
                found += importlib.import_module(f"bench.{module}").run()
            except SkippedError as error:
                skipped[module] = str(error)
                console.print(f"{module} skipped: {error}")
    ratios = [each for each in found if isinstance(each, Ratio)]
    usages = [each for each in found if isinstance(each, Usage)]
    if ratios:
        console.print(_table(ratios))
    if usages:
        console.print(_usage_table(usages))
    now = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y%m%dT%H%M%S}.json"
    record = {
        "machine": line,
        "time": now.isoformat(),
        "ratios": [ratio.record() for ratio in ratios],
        "usages": [usage.record() for usage in usages],
        "skipped": skipped,
    }
    path.write_text(json.dumps(record, indent=2))
    console.print(f"all figures: bench/results/{path.name}")
    return 0 if all(ratio.met for ratio in ratios) else 1


def _table(ratios: list[Ratio]) -> Table:
    table = Table("", "ours", "plain", "ratio", "goal", "met", "min-max of ours", "n", "note")
    for ratio in ratios:
        bound = "<=" if ratio.at_most else ">="
        table.add_row(
            ratio.name,
            f"{statistics.median(ratio.ours):.2f} {ratio.unit}",
            f"{statistics.median(ratio.plain):.2f} {ratio.unit}",
            f"{ratio.value:.2f}",
            f"{bound} {ratio.goal}",
            "yes" if ratio.met else "no",
            f"{min(ratio.ours):.2f}-{max(ratio.ours):.2f}",
            str(len(ratio.ours)),
            ratio.note,
        )
    return table


def _usage_table(usages: list[Usage]) -> Table:
    table = Table("", "CPU, % of one core", "memory", "note")
    for usage in usages:
        cpu, memory = f"{usage.cpu_percent:.1f}", f"{usage.memory_mb:.0f} MB"
        table.add_row(usage.name, cpu, memory, usage.note)
    return table


if __name__ == "__main__":
    sys.exit(main())
