"""Measure the ratios of docs/benchmarks.md: a table here, all figures in bench/results/."""

import argparse
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import moved, results, table
from bench.form import Form
from bench.measure import FailedError, Skipped, SkippedError, machine
from bench.results import Record

MODULES = (
    "p1_p3_cold_up_and_destroy",
    "p1_p3_p14_docker",
    "p2_no_op_up",
    "p4_p12_lambda",
    "p5_submit",
    "p6_throughput",
    "p7_two_workers",
    "p8_checkpoints",
    "p9_stall",
    "p10_resume",
    "p11_data_feeding",
    "p13_hosts",
    "p15_queue",
    "p16_autoscaling",
    "p17_dev",
    "p18_client",
    "p19_pull",
    "p20_chargpt",
    "p21_sweep",
    "p22_many_resources",
    "p23_ui",
    "p27_scale",
    "p29_forty",
    "p31_head",
    "p32_log",
)


def main() -> int:
    """Run the chosen benchmarks; 1 when one fails or, in full form, misses its goal."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("names", nargs="*", metavar="P1", help="only these (default: all)")
    parser.add_argument(
        "--smallest",
        action="store_true",
        help="Show that each works: once, with little data; figures are not kept.",
    )
    parser.add_argument(
        "--ratios",
        type=Path,
        metavar="FILE",
        help="Add the ratios to those of earlier landings, and print which moved.",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="Measure nothing; write the newest figures of these into docs/benchmarks.md.",
    )
    args = parser.parse_args()
    names = {name.lower() for name in args.names}
    chosen = [module for module in MODULES if not names or names & set(module.split("_"))]
    if not chosen:
        parser.error(f"no benchmark is called {' '.join(args.names)}: {' '.join(MODULES)}")
    if args.write:
        try:
            results.write(results.newest(chosen))
        except FailedError as error:
            sys.exit(f"error: {error}")
        return 0
    return _measure(chosen, args.ratios, smallest=args.smallest)


def _measure(modules: Sequence[str], file: Path | None, *, smallest: bool) -> int:
    console = Console(width=table.COLUMNS, soft_wrap=True)
    commit, line = results.commit(), machine()
    console.print(f"{results.now():%Y-%m-%d %H:%M} UTC, commit {commit}\n{line}")
    records: list[Record] = []
    failures: dict[str, str] = {}
    with Form(smallest=smallest) as form:
        for module in modules:
            begun = time.monotonic()
            with console.status(f"{module} ..."):
                try:
                    found = importlib.import_module(f"bench.{module}").run(form)
                except SkippedError as error:
                    found = [Skipped(module, str(error))]
                except FailedError as error:
                    failures[module] = str(error)
                except Exception:  # the others are still measured
                    failures[module] = traceback.format_exc()
            took = time.monotonic() - begun
            if module in failures:
                console.print(f"{module} failed after {took:.0f} s", markup=False)
                continue
            console.print(f"{module} took {took:.0f} s", markup=False)
            records.append(
                Record(
                    module=module,
                    commit=commit,
                    time=results.now(),
                    machine=line,
                    seconds=took,
                    results=found,
                )
            )
            if not smallest:
                results.keep(records[-1])
    ratios, usages, skipped = results.sorted_by_kind(records)
    if smallest:
        console.print("Figures of the smallest form do not count.")
    if ratios:
        console.print(table.of_ratios(ratios))
    if usages:
        console.print(table.of_usages(usages))
    for each in skipped:
        console.print(f"skipped: {each.name}: {each.reason}", markup=False)
    for module, why in failures.items():
        console.print(f"\nfailed: {module}: {why}", markup=False, highlight=False)
    for text in moved.note(file, commit, ratios) if file else ():
        console.print(text, markup=False, highlight=False)
    missed = not smallest and any(ratio.verdict == "missed" for ratio in ratios)
    return 1 if failures or missed else 0


if __name__ == "__main__":
    # A shell's `&` makes its command and all children ignore SIGINT: the `train dev` of P17, which
    # is ended by one, would go on. A SIGTERM, too, takes down stacks that are up.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    # Each program would compile all its modules again, which takes longer than what is measured.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
