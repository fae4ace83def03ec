"""The cost of each test and each fixture: a pytest plugin, and `python -m tests.cost TABLE…`.

Processor seconds, of pytest and of every process that comes from it, even a detached one:
pytest runs in a control group of its own (version 2, which a root user may make). Without a
group, only processes that have ended and were waited for count; the report says so. Containers
belong to the Docker Engine: they have a column of their own, in which all containers of the machine
count, and which is 0 where no test of containers runs. A service that stays up costs the tests
during which it runs.

`--costs FILE` writes the table: one line for each part of a test, tab-separated.
"""

import csv
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

COLUMNS = ("part", "name", "test", "processor_s", "containers_s", "wall_s")
MOST = 10
Seconds = tuple[float, ...]  # of processors, of processors in containers, of time
Row = tuple[str, str, str, Seconds]  # part, name, test, cost


def own_group() -> tuple[Path, Path] | None:
    """Where control groups of version 2 are mounted, and the one that this process is in."""
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        roots = [Path(line.split()[4]) for line in mounts if " - cgroup2 " in line]
        names = [line.removeprefix("0::/") for line in groups if line.startswith("0::/")]
        return (roots[0], roots[0] / names[0]) if roots and names else None
    return None


def used_by(group: Path) -> float:
    """Processor seconds of a group and of all below it; 0 for a missing one."""
    with suppress(OSError):
        for line in (group / "cpu.stat").read_text().splitlines():
            if line.startswith("usage_usec "):
                return int(line.split()[1]) / 1e6
    return 0.0


class Meter:
    """Counts processor seconds from where it is started."""

    def __init__(self) -> None:
        self.group: Path | None = None
        self.engine: Path | None = None
        self.how = "children that have ended: no control group can be made here"
        if (found := own_group()) is None:
            return
        root, parent = found
        self.engine = root / "docker"  # where an Engine without systemd has its containers
        group = parent / f"tests-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self.group, self.how = group, "all processes, by a control group"

    def read(self) -> Seconds:
        if self.group is not None:
            processor = used_by(self.group)
        else:
            whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            processor = sum(sum(resource.getrusage(who)[:2]) for who in whose)
        return processor, used_by(self.engine) if self.engine else 0.0, time.monotonic()

    def end(self) -> None:
        """Move processes that still run back to pytest's first group, and remove this one."""
        group, self.group = self.group, None
        if group is None:
            return
        for _ in range(100):  # processes start while others are moved
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (group.parent / "cgroup.procs").write_text(pid)
            with suppress(OSError):
                group.rmdir()
                return
            time.sleep(0.01)


class Costs:
    """The plugin: takes a reading around every part."""

    def __init__(self, table: Path | None) -> None:
        self.meter = Meter()
        self.first = self.meter.read()
        self.rows: list[Row] = []
        self.ending: dict[object, Seconds] = {}
        self.table = None
        if table is not None:
            table.parent.mkdir(parents=True, exist_ok=True)
            # Line by line: a run that is cut off has told what it cost until then.
            self.table = table.open("w", buffering=1)
            self.table.write("\t".join(COLUMNS) + "\n")

    def note(self, part: str, name: str, test: str, before: Seconds) -> None:
        cost = tuple(now - then for now, then in zip(self.meter.read(), before, strict=True))
        self.rows.append((part, name, test, cost))
        if self.table is not None:
            row = [part, name, test, *(f"{each:.3f}" for each in cost)]
            csv.writer(self.table, "excel-tab", lineterminator="\n").writerow(row)

    @contextmanager
    def measured(self, part: str, name: str, test: str) -> Iterator[None]:
        before = self.meter.read()
        try:
            yield
        finally:
            self.note(part, name, test, before)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        files = [item.nodeid.partition("::")[0] for item in session.items]
        if not any("integration" in file and "docker" in file for file in files):
            self.meter.engine = None  # containers of another run
            self.first = (self.first[0], 0.0, self.first[2])
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
                fixturedef.addfinalizer(self._ends(fixturedef))

    def _ends(self, fixturedef: pytest.FixtureDef[object]) -> Callable[[], None]:
        return lambda: self.ending.update({fixturedef: self.meter.read()})

    def pytest_fixture_post_finalizer(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> None:
        if before := self.ending.pop(fixturedef, None):
            name = f"{fixturedef.baseid}::{fixturedef.argname}"
            self.note("teardown", name, request.node.nodeid, before)

    def pytest_sessionfinish(self) -> None:
        self.note("all", "", "", self.first)
        self.meter.end()
        if self.table is not None:
            self.table.close()
            self.table = None  # an interrupted session ends its fixtures after this

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        processor, containers, wall = self.rows[-1][3]
        terminalreporter.section("cost")
        terminalreporter.line(
            f"{processor:.1f} processor seconds ({self.meter.how}), "
            f"{containers:.1f} in containers, {wall:.1f} s of time; most of them:"
        )
        for name, cost in dearest(self.rows):
            terminalreporter.line(" ".join(f"{each:8.1f}" for each in cost) + f"  {name}")


def sums(costs: Iterable[tuple[str, Seconds]]) -> list[tuple[str, Seconds]]:
    """Costs that have the same name added up, the largest first."""
    found: dict[str, Seconds] = {}
    for name, cost in costs:
        former = found.get(name, (0.0,) * len(cost))
        found[name] = tuple(a + b for a, b in zip(former, cost, strict=True))
    return sorted(found.items(), key=lambda each: -sum(each[1][:2]))


def dearest(rows: list[Row]) -> list[tuple[str, Seconds]]:
    """The tests and the fixtures that cost most; a fixture with all its uses together."""
    uses = Counter(name for part, name, _, _ in rows if part == "setup")

    def label(part: str, name: str, test: str) -> str:
        times = f" ({uses[name]} times)" if uses[name] > 1 else ""
        return {"test": test, "collection": part}.get(part, f"fixture {name}{times}")

    return sums((label(*key), cost) for *key, cost in rows if key[0] != "all")[:MOST]


def by_file(tables: list[Path]) -> list[tuple[str, Seconds]]:
    """Sums for each test file, the dearest first.

    A fixture belongs to the file whose test brought it up.
    """
    found = []
    for table in tables:
        with table.open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                if row["part"] != "all":
                    cost = tuple(float(row[column]) for column in COLUMNS[3:])
                    found.append((row["test"].partition("::")[0], cost))
    return sums(found)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, metavar="FILE", help="write what each test costs")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(config.getoption("--costs")), "costs")


if __name__ == "__main__":
    for file, seconds in by_file([Path(each) for each in sys.argv[1:]]):
        sys.stdout.write("".join(f"{each:9.1f}" for each in seconds) + f"  {file or '-'}\n")
