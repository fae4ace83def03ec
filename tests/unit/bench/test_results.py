"""A benchmark's output, records and page, and its message when a child fails."""

import io
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from bench import __main__ as command
from bench import chart, measure, moved, results, table
from bench.measure import FailedError, Ratio, Result, Skipped, Usage
from bench.results import Record

BENCHMARKS = Path(results.__file__).parent
LARGE = 123_456_789.0


def _ratio(ours: float = 1.4, *, name: str = "P0", goal: float | None = 1.5, least: bool = False):
    values = {"ours": [ours], "plain": [1.0], "alone": [1.2], "unit": "tokens/s"}
    return Ratio(name=name, goal=goal, at_most=not least, **values)


def _record(module: str, day: int, commit: str, *found: Result) -> Record:
    time = datetime(2026, 11, day, tzinfo=UTC)
    return Record(
        module=module,
        commit=commit,
        time=time,
        machine=f"2 CPUs, load {day}.0, 9 files",
        seconds=1,
        results=[*found],
    )


def test_a_ratio_is_met_up_to_its_goal():
    cases = [
        (1.5, False, "met"),
        (1.51, False, "missed"),
        (1.5, True, "met"),
        (1.49, True, "missed"),
    ]
    for ours, least, verdict in cases:
        assert _ratio(ours, least=least).verdict == verdict
    assert _ratio(9.0, goal=None).verdict == "no goal"


def test_a_ratio_outside_of_what_landings_had_is_told(tmp_path):
    file = tmp_path / "ratios.json"
    for number, ours in enumerate((1.0, 1.2, 1.1)):
        assert moved.note(file, f"c{number}", [_ratio(ours)]) == []
    assert moved.note(file, "c3", [_ratio(1.29), _ratio(9.0, name="P1")]) == []
    [line] = moved.note(file, "c4", [_ratio(1.45)])
    assert line == "moved: P0 is 1.450, and was 1.000 to 1.290 in 4 landings"
    assert moved.note(file, "c4", [_ratio(1.45)]) == [line]  # tried again: not its own noise
    [line] = moved.note(file, "c5", [_ratio(0.7)])
    assert "P0 is 0.700" in line
    for number in range(moved.KEPT):
        moved.note(file, f"d{number}", [_ratio(2.0)])
    assert len(json.loads(file.read_text())["P0"]) == moved.KEPT


def test_the_table_fits_80_columns_and_cuts_no_figure():
    text = "".join(path.read_text() for path in BENCHMARKS.glob("p*.py"))
    longest = max(re.findall(r'"(P\d+ [^"\n]+)"', text), key=len)
    rows = [
        Ratio(
            name=longest,
            ours=[LARGE],
            plain=[LARGE],
            alone=[98_765.0],
            unit="tokens/s",
            goal=1.333,
            at_most=each,
        )
        for each in (True, False)
    ]
    out = io.StringIO()
    console = Console(file=out, width=200)
    console.print(table.of_ratios(rows))
    console.print(table.of_usages([Usage(name=longest, cpu_percent=100, memory_mb=LARGE)]))
    lines = out.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= table.COLUMNS
    figures = "123,456,789 123,456,789 98,765 tokens/s 1.000 {} 1.333 {}"
    shown = " ".join(out.getvalue().split())
    for sign, verdict in (("<=", "met"), (">=", "missed")):
        assert figures.format(sign, verdict) in shown


def test_a_benchmark_whose_child_fails_shows_what_it_said(monkeypatch, capsys):
    code = "import sys; print('half of it'); sys.exit('[the disk] is full')"
    fails = SimpleNamespace(run=lambda _: measure.run([sys.executable, "-c", code]))
    works = SimpleNamespace(run=lambda _: [_ratio(1.6)])
    for name, module in (("p0_fails", fails), ("p0_works", works)):
        monkeypatch.setitem(sys.modules, f"bench.{name}", module)
    monkeypatch.setattr(command, "MODULES", ("p0_fails", "p0_works"))
    kept: list[Record] = []
    monkeypatch.setattr(results, "keep", kept.append)
    monkeypatch.setattr(sys, "argv", ["bench"])
    assert command.main() == 1
    said = capsys.readouterr().out
    assert "ended with 1\n  half of it\n  [the disk] is full\n" in said
    assert "missed" in said  # the other one is still measured
    assert [record.module for record in kept] == ["p0_works"]
    monkeypatch.setattr(sys, "argv", ["bench", "--smallest", "works"])
    assert command.main() == 0  # a goal counts in full form only
    assert len(kept) == 1


def test_each_row_of_the_page_has_its_date_commit_and_verdict(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n")
    met = _ratio(name="P0 one")
    idle = Usage(name="head", cpu_percent=4.8, memory_mb=702)
    for record in (
        _record("p0_one", 1, "aaa", _ratio(9.9)),
        _record("p0_one", 3, "bbb", met, idle),
        _record("p0_one", 4, "ccc-changed", _ratio(9.9)),
        _record("p0_two", 2, "aaa", _ratio(1.6, name="P0 two"), Skipped("P0 more", "no engine")),
    ):
        results.keep(record, tmp_path / "kept")
    results.write(results.newest(["p0_one", "p0_two"], tmp_path / "kept"), page)
    before, _, *lines, _, after = page.read_text().splitlines()
    assert (before, after) == ("before", "after")
    # Each benchmark begins under another load, on the same machine.
    assert lines[:3] == ["- 2 CPUs, 9 files", "- load before each benchmark: 2.0 to 3.0", ""]
    assert lines[3] == f"![Each ratio as a bar, with its goal as a line]({results.CHART})"
    assert [line for line in lines if "2026" in line] == [
        "| P0 one | 1.40 | 1.00 tokens/s | 1.20 | 1.400 | <= 1.5 | met | 2026-11-03 `bbb` |",
        "| P0 two | 1.60 | 1.00 tokens/s | 1.20 | 1.600 | <= 1.5 | missed | 2026-11-02 `aaa` |",
        "| head | 4.8 | 702 | 2026-11-03 `bbb` |",
        "- P0 more: no engine (2026-11-02 `aaa`)",
    ]
    with pytest.raises(FailedError, match=r"not measured at any commit: P9; .* python -m bench P9"):
        results.newest(["p0_one", "p9_more"], tmp_path / "kept")


def test_a_bar_passes_the_line_exactly_if_its_goal_is_missed():
    rows = [
        _ratio(1.4),
        _ratio(1.6),
        _ratio(1.6, least=True),
        _ratio(1.4, least=True),
        _ratio(0.05, goal=None, least=True),
    ]
    bars = [
        each.attrib
        for each in ET.fromstring(chart.svg(rows)).iter("{http://www.w3.org/2000/svg}rect")
    ][1:]
    limit = chart.LIMIT - chart.LEFT
    beyond = [float(bar["width"]) > limit for bar in bars]
    assert beyond == [False, True, False, True, True]
    assert [bar["class"] for bar in bars] == ["met", "missed", "met", "missed", "none"]
    assert all(float(bar["width"]) <= chart.WIDTH - 2 * chart.LEFT for bar in bars)


def test_the_page_has_a_place_for_results():
    text = results.PAGE.read_text()
    assert text.count(results.BEGIN) == text.count(results.END) == 1
