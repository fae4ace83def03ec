"""The cost of each test and each fixture: a pytest plugin, and `python -m tests.cost TABLE…`.

Processor seconds, of pytest and of every process that comes from it, even a detached one:
pytest runs in a control group of its own (version 2, which a root user may make). Without a
group, only processes that have ended and were waited for count; the report says so. Containers
belong to the Docker Engine: they have a column of their own, in which all containers of the machine
count, and which is 0 where no test of containers runs. A service that stays up costs the tests
during which it runs.

`--costs FILE` writes the table: one line for each part of a test, tab-separated.
"""

from __future__ import annotations

import csv
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

COLUMNS = ("part", "name", "test", "processor_s", "containers_s", "wall_s")
MOST = 10
MOUNTS = Path("/proc/self/mountinfo")
OWN_GROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Reading:
    """Seconds since some moment."""

    processor: float
    containers: float
    wall: float

    def __sub__(self, other: Reading) -> Reading:
        return Reading(
            self.processor - other.processor,
            self.containers - other.containers,
            self.wall - other.wall,
        )


def group_of_this_process() -> tuple[Path, Path] | None:
    """Where control groups of version 2 are mounted, and the one that this process is in."""
    with suppress(OSError):
        for line in MOUNTS.read_text().splitlines():
            fields, _, kind = line.partition(" - ")
            if kind.startswith("cgroup2 "):
                root = Path(fields.split()[4])
                for entry in OWN_GROUP.read_text().splitlines():
                    if entry.startswith("0::/"):
                        return root, root / entry.removeprefix("0::/")
    return None


def used_by(group: Path) -> float:
    """Processor seconds of a group and of all below it; 0 for a missing one."""
    with suppress(OSError):
        for line in (group / "cpu.stat").read_text().splitlines():
            if line.startswith("usage_usec "):
                return int(line.split()[1]) / 1e6
    return 0.0


Row = tuple[str, str, str, Reading]  # part, name, test, cost


class Meter:
    """Counts processor seconds from where it is started."""

    def __init__(self) -> None:
        self.group: Path | None = None
        self.engine: Path | None = None
        found = group_of_this_process()
        if found is None:
            return
        root, parent = found
        self.engine = root / "docker"  # where an Engine without systemd has its containers
        group = parent / f"tests-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self.group = group

    @property
    def how(self) -> str:
        """A text that says what is counted."""
        if self.group is None:
            return "children that have ended: no control group can be made here"
        return "all processes, by a control group"

    def read(self) -> Reading:
        if self.group is not None:
            processor = used_by(self.group)
        else:
            spent = [
                resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            ]
            processor = sum(each.ru_utime + each.ru_stime for each in spent)
        containers = used_by(self.engine) if self.engine else 0.0
        return Reading(processor, containers, time.monotonic())

    def end(self) -> None:
        """Move processes that still run back to pytest's first group, and remove this one."""
        if self.group is None:
            return
        for _ in range(100):  # processes start while others are moved
            for pid in (self.group / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (self.group.parent / "cgroup.procs").write_text(pid)
            with suppress(OSError):
                self.group.rmdir()
                break
            time.sleep(0.01)
        self.group = None


class Costs:
    """The plugin: takes a reading around every part."""

    def __init__(self, table: Path | None) -> None:
        self.meter = Meter()
        self.how = self.meter.how
        self.first = self.meter.read()
        self.rows: list[Row] = []
        self.ending: dict[object, Reading] = {}
        self.table = None
        if table is not None:
            table.parent.mkdir(parents=True, exist_ok=True)
            # Line by line: a run that is cut off has told what it cost until then.
            self.table = table.open("w", buffering=1)
            self.table.write("\t".join(COLUMNS) + "\n")

    def note(self, part: str, name: str, test: str, before: Reading) -> None:
        cost = self.meter.read() - before
        self.rows.append((part, name, test, cost))
        if self.table is not None:
            seconds = (f"{each:.3f}" for each in (cost.processor, cost.containers, cost.wall))
            csv.writer(self.table, "excel-tab", lineterminator="\n").writerow(
                [part, name, test, *seconds]
            )

    @contextmanager
    def measured(self, part: str, name: str, test: str) -> Iterator[None]:
        before = self.meter.read()
        try:
            yield
        finally:
            self.note(part, name, test, before)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        parts = [item.nodeid.partition("::")[0] for item in session.items]
        if not any("integration" in part and "docker" in part for part in parts):
            self.meter.engine = None  # containers of another run
            self.first = replace(self.first, containers=0.0)
        self.note("collection", "", "", self.first)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        with self.measured("test", item.name, item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        name, test = f"{fixturedef.baseid}::{fixturedef.argname}", request._pyfuncitem.nodeid
        with self.measured("setup", name, test):
            try:
                return (yield)
            finally:
                # Called first of all that ends this fixture, and after all fixtures that use it.
                fixturedef.addfinalizer(lambda: self._ends(fixturedef))

    def _ends(self, fixturedef: pytest.FixtureDef[object]) -> None:
        self.ending[fixturedef] = self.meter.read()

    def pytest_fixture_post_finalizer(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> None:
        before = self.ending.pop(fixturedef, None)
        if before is not None:
            name, test = f"{fixturedef.baseid}::{fixturedef.argname}", request.node.nodeid
            self.note("teardown", name, test, before)

    def pytest_sessionfinish(self) -> None:
        self.note("all", "", "", self.first)
        self.meter.end()
        if self.table is not None:
            self.table.close()
            self.table = None  # an interrupted session ends its fixtures after this

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        whole = self.rows[-1][3]
        terminalreporter.section("cost")
        terminalreporter.line(
            f"{whole.processor:.1f} processor seconds ({self.how}), "
            f"{whole.containers:.1f} in containers, {whole.wall:.1f} s of time; most of them:"
        )
        for name, cost in dearest(self.rows):
            terminalreporter.line(
                f"{cost.processor:8.1f} {cost.containers:8.1f} {cost.wall:8.1f}  {name}"
            )


def dearest(rows: list[Row]) -> list[tuple[str, Reading]]:
    """The tests and the fixtures that cost most; a fixture with all its uses together."""
    sums: dict[str, Reading] = {}
    uses: Counter[str] = Counter()
    for part, name, test, cost in rows:
        key = {"test": test, "collection": "collection"}.get(part, f"fixture {name}")
        if part != "all":
            none = Reading(0, 0, 0)
            sums[key] = none - (none - sums.get(key, none) - cost)
            uses[key] += part == "setup"
    named = [(f"{key} ({uses[key]} times)" if uses[key] > 1 else key, sums[key]) for key in sums]
    named.sort(key=lambda each: each[1].processor + each[1].containers, reverse=True)
    return named[:MOST]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, metavar="FILE", help="write what each test costs")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(config.getoption("--costs")), "costs")


def by_file(tables: list[Path]) -> dict[str, list[float]]:
    """Sums for each test file: processor, containers, wall.

    A fixture belongs to the file whose test brought it up.
    """
    sums: dict[str, list[float]] = {}
    for table in tables:
        with table.open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                if row["part"] != "all":
                    into = sums.setdefault(row["test"].partition("::")[0], [0.0] * 3)
                    for place, column in enumerate(COLUMNS[3:]):
                        into[place] += float(row[column])
    return sums


if __name__ == "__main__":
    found = by_file([Path(each) for each in sys.argv[1:]])
    for file, seconds in sorted(found.items(), key=lambda each: -sum(each[1][:2])):
        sys.stdout.write("".join(f"{each:9.1f}" for each in seconds) + f"  {file or '-'}\n")
