"""Prints how many tests were skipped, and a line for each reason: `python -m tests.skipped FILE`.

The files are written by `--outcome`, one for each run of pytest (tests/again.py). With `--list` the
tests themselves are printed, for `pytest @LIST` on a machine that has what they need.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path


def skipped(files: Sequence[Path]) -> dict[str, list[str]]:
    """Return the skipped tests by reason; a run that did not end has no file, and skipped none."""
    found: dict[str, list[str]] = {}
    for file in filter(Path.exists, files):
        for reason, tests in json.loads(file.read_text())["skipped"].items():
            found.setdefault(reason, []).extend(tests)
    return found


def summary(found: dict[str, list[str]]) -> list[str]:
    """Return the lines about skipped tests."""
    counts = {reason: len(tests) for reason, tests in found.items()}
    if not counts:
        return ["No test was skipped."]
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    lines = [f"{count:5}  {reason}" for reason, count in ordered]
    return [f"{sum(counts.values())} tests were skipped:", *lines]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.skipped")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--list", action="store_true", help="the skipped tests")
    parsed = parser.parse_args(arguments)
    found = skipped(parsed.files)
    lines = [test for tests in found.values() for test in tests] if parsed.list else summary(found)
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
