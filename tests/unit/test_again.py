"""Tests that are tried a second time, tests that are not, and skipped ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import again

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.fixture
def broken():
    raise OSError

def test_good(): pass
def test_bad(): assert False
def test_unready(broken): pass
@pytest.mark.skipif(True, reason="no such program")
@pytest.mark.parametrize("number", range(2))
def test_skipped(number): pass
def test_skips(): pytest.skip("no such program")
"""
SKIPPED = 'import pytest; pytest.importorskip("no_such_module", reason="no such module")'


def written(folder: Path, name: str, code: int, failed: list[str]) -> Path:
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"exit": code, "failed": failed}))
    return file


def test_failed_tests_of_all_parts_are_tried_again_and_listed(tmp_path):
    files = [written(tmp_path, "one", 1, ["a::b"]), written(tmp_path, "two", 0, [])]
    calls, said = [], []
    assert again.main(files, lambda command: calls.append(command) or 0, said.append) == 0
    assert [call[-2:] for call in calls] == [["pytest", "a::b"]]
    # One fixture that fails takes all tests of its file along.
    written(tmp_path, "two", 1, [f"c::{number}" for number in range(2 * again.MOST)])
    assert len(again.failed_once(files)) == 2 * again.MOST + 1
    assert said == ["passed only at the second try: a::b"]


def test_what_fails_again_fails(tmp_path):
    said: list[str] = []
    assert again.main([written(tmp_path, "one", 1, ["a"])], lambda _: 1, said.append) == 1
    assert said == []


@pytest.mark.parametrize(
    ("code", "failed", "reason"),
    [
        (2, ["a"], "ended with 2"),  # interrupted, or a file that cannot be imported
        (3, ["a"], "ended with 3"),
        (0, [], "no test failed"),
        (1, [f"{number}::a" for number in range(again.MOST + 1)], "more than"),
    ],
)
def test_a_broken_run_is_not_tried_again(tmp_path, code, failed, reason):
    files = [written(tmp_path, "one", code, failed)]
    calls, said = [], []
    assert again.main(files, lambda command: calls.append(command) or 0, said.append) == 1
    assert not calls
    assert reason in said[0]


def test_a_part_that_was_killed_is_not_tried_again(tmp_path):
    with pytest.raises(ValueError, match="two did not end"):
        again.failed_once([written(tmp_path, "one", 1, ["a"]), tmp_path / "two.json"])


def test_the_plugin_notes_faults_of_calls_and_of_fixtures(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text(SKIPPED)
    file = tmp_path / "part.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.again", "--outcome", file]
    subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], cwd=ROOT, capture_output=True, check=False
    )
    failed = ["test_it.py::test_bad", "test_it.py::test_unready"]
    tests = [f"test_it.py::{name}" for name in ("test_skipped[0]", "test_skipped[1]", "test_skips")]
    reasons = {"no such program": tests, "no such module": ["test_other.py"]}
    assert json.loads(file.read_text()) == {
        "exit": 1,
        "passed": ["test_it.py"],
        "failed": failed,
        "skipped": reasons,
    }


def test_skips_of_all_parts_are_a_line_for_each_reason(tmp_path):
    files = [tmp_path / f"{name}.json" for name in ("one", "two", "killed")]
    parts = ({"no ssh": ["a", "b"], "no Go": ["c"]}, {"no Go": ["d"] * 40})
    for file, reasons in zip(files, parts, strict=False):
        file.write_text(json.dumps({"skipped": reasons}))
    found = again.skipped(files)
    assert found == {"no ssh": ["a", "b"], "no Go": ["c", *["d"] * 40]}
    lines = ["43 tests were skipped:", "   41  no Go", "    2  no ssh"]
    assert again.summary(found) == lines
    assert again.summary(again.skipped(files[2:])) == ["No test was skipped."]
