"""A second try for failed tests: a pytest plugin, and what `make retry` does.

Real clusters on two cores miss a deadline now and then while other tests run. CI tries such a test
again alone; a fault of the code fails it there too. Tests that passed only at the second try are
listed at the end of CI, for somebody to look at.

`--outcome FILE` has pytest write how it ended, files with tests that passed, what failed, and
what was skipped for which reason.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

# Files, for one fixture that fails takes all tests of its file along. With more of them, something
# is broken and a second try wastes minutes.
MOST = 8
ENDED = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,  # a landing may leave none of a part
)


class Outcome:
    """The plugin: notes which tests passed, failed or were skipped."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.passed: set[str] = set()  # files
        self.failed: list[str] = []
        self.skipped: dict[str, list[str]] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # a killed run leaves none

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)
        if report.passed and report.when == "call":
            self.passed.add(report.nodeid.partition("::")[0])
        self._note_skip(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note_skip(report)  # of a whole file

    def _note_skip(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            self.skipped.setdefault(reason, []).append(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        ended = {"exit": int(exitstatus), "passed": sorted(self.passed)}
        self.file.write_text(json.dumps(ended | {"failed": self.failed, "skipped": self.skipped}))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome", type=Path, metavar="FILE", help="write which tests failed")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--outcome"):
        config.pluginmanager.register(Outcome(file), "outcome")


def failed_once(files: Sequence[Path]) -> list[str]:
    """The tests to try again.

    Args:
        files: written by `--outcome`, one for each run of pytest.

    Raises:
        ValueError: a second try proves nothing: a run did not end, broke, or had too many failures.
    """
    failed = []
    for file in files:
        if not file.exists():
            raise ValueError(f"{file.stem} did not end")
        outcome = json.loads(file.read_text())
        if outcome["exit"] not in ENDED:
            raise ValueError(f"{file.stem} ended with {outcome['exit']}, not with failed tests")
        failed += outcome["failed"]
    if not failed:
        raise ValueError("no test failed, so something else did")
    broken = {test.partition("::")[0] for test in failed}
    if len(broken) > MOST:
        raise ValueError(f"tests of {len(broken)} files failed, more than {MOST}")
    return failed


def skipped(files: Sequence[Path]) -> dict[str, list[str]]:
    """Return the skipped tests by reason; a run that did not end has no file, and skipped none."""
    found: dict[str, list[str]] = {}
    for file in filter(Path.exists, files):
        for reason, tests in json.loads(file.read_text())["skipped"].items():
            found.setdefault(reason, []).extend(tests)
    return found


def summary(found: dict[str, list[str]]) -> list[str]:
    """Return the lines about skipped tests: they show what this machine lacks."""
    counts = {reason: len(tests) for reason, tests in found.items()}
    if not counts:
        return ["No test was skipped."]
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    lines = [f"{count:5}  {reason}" for reason, count in ordered]
    return [f"{sum(counts.values())} tests were skipped:", *lines]


def main(
    files: Sequence[Path], call: Callable[[Sequence[str]], int], say: Callable[[str], object]
) -> int:
    """Try failed tests again.

    Args:
        files: see `failed_once`.
        call: runs a command; its exit code.
        say: shows a line.

    Returns:
        0 if all of them pass now.
    """
    try:
        failed = failed_once(files)
    except ValueError as reason:
        say(f"no second try: {reason}")
        return 1
    code = call([sys.executable, "-m", "pytest", *failed])
    for test in failed if code == 0 else ():
        say(f"passed only at the second try: {test}")
    return code
