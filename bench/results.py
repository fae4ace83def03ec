"""Figures that are kept for each commit, and the part of docs/benchmarks.md made from them."""

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import chart, table
from bench.measure import ROOT, FailedError, Ratio, Result, Skipped, Usage

FOLDER = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
CHART = "benchmarks.svg"  # beside the page
BEGIN = "<!-- results: python -m bench --write -->"
END = "<!-- end of results -->"
CHANGED = "-changed"  # after the commit, for figures of a tree with uncommitted changes
LOAD = re.compile(r", load ([\d.]+)")  # of a machine's line: differs between benchmarks
KINDS: dict[str, type[Ratio | Usage | Skipped]] = {
    kind.__name__: kind for kind in (Ratio, Usage, Skipped)
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """The results of one benchmark.

    Attributes:
        module: the benchmark's, without its package.
        commit: the one checked out; CHANGED follows if files differ from it.
        time: when it ended.
        machine: a line on it.
        seconds: that it took.
        results: the figures.
    """

    module: str
    commit: str
    time: datetime
    machine: str
    seconds: float
    results: list[Result]


def commit() -> str:
    """Return the commit that is checked out, as a Record has it."""
    head = _git("rev-parse", "--short=10", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return f"{head}{CHANGED}" if changes else head


def keep(record: Record, folder: Path = FOLDER) -> None:
    """Keep a record, in place of an earlier one of the same benchmark and commit."""
    content = asdict(record) | {
        "time": record.time.isoformat(timespec="seconds"),
        "results": [asdict(each) | {"kind": type(each).__name__} for each in record.results],
    }
    path = folder / record.commit / f"{record.module}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def newest(modules: Iterable[str], folder: Path = FOLDER) -> list[Record]:
    """Return the newest record of each benchmark, in the given order.

    Raises:
        FailedError: one has no record of a commit.
    """
    records: dict[str, Record] = {}
    for path in folder.glob("*/*.json"):
        record = _read(path)
        if record.commit.endswith(CHANGED):
            continue
        known = records.get(record.module)
        if known is None or known.time < record.time:
            records[record.module] = record
    if missing := [module for module in modules if module not in records]:
        names = " ".join(module.partition("_")[0].upper() for module in missing)
        raise FailedError(
            f"not measured at any commit: {names}; commit the changes, run python -m bench {names}"
        )
    return [records[module] for module in modules]


def write(records: Sequence[Record], page: Path = PAGE) -> None:
    """Put the figures into the page and its chart, in place of its old ones."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise FailedError(f"{page} has no lines {BEGIN} and {END}")
    machines = dict.fromkeys(LOAD.sub("", record.machine) for record in records)
    loads = [float(load) for record in records for load in LOAD.findall(record.machine)]
    if loads:
        machines[f"load before each benchmark: {min(loads):.1f} to {max(loads):.1f}"] = None
    measured = [
        (f"{record.time:%Y-%m-%d} `{record.commit}`", result)
        for record in records
        for result in record.results
    ]
    picture = f"![Each ratio as a bar, with its goal as a line]({CHART})"
    head = [BEGIN, *(f"- {line}" for line in machines), "", picture, ""]
    page.write_text(before + "\n".join([*head, *table.markdown(measured), END]) + after)
    page.with_name(CHART).write_text(chart.svg(sorted_by_kind(records)[0]))


def sorted_by_kind(
    records: Sequence[Record],
) -> tuple[list[Ratio], list[Usage], list[Skipped]]:
    """Return the results of all records, by kind."""
    found = [result for record in records for result in record.results]
    return (
        [each for each in found if isinstance(each, Ratio)],
        [each for each in found if isinstance(each, Usage)],
        [each for each in found if isinstance(each, Skipped)],
    )


def _read(path: Path) -> Record:
    content: dict[str, Any] = json.loads(path.read_text())
    results: list[Any] = [KINDS[each.pop("kind")](**each) for each in content["results"]]
    time = datetime.fromisoformat(content["time"])
    return Record(**content | {"time": time, "results": results})


def now() -> datetime:
    """Return the time of a record."""
    return datetime.now(UTC)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else "unknown"
