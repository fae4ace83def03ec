"""The parts of the tests: each test is in one, and what a part prints is not mixed with others."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import again, parts
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
REAL = sys.executable
PYTEST = """#!/bin/sh
case "$*" in
*first*) echo "first begins"; sleep 0.5; echo "first ends" ;;
*second*) echo "second begins"; sleep 0.2; echo "second ends" >&2; exit 1 ;;
*third*) echo "third: $*" ;;
*nothing*) echo "nothing: $*"; exit 5 ;;
*kubernetes*) sleep 60 & trap 'touch ended; kill $!; exit 1' INT TERM; touch begun; wait ;;
esac
"""


def chosen(arguments: list[str], file: str) -> bool:
    """Whether arguments of pytest choose a file."""

    def below(folders: list[str]) -> bool:
        return any(file == folder or file.startswith(f"{folder}/") for folder in folders)

    left_out = [each.partition("=")[2] for each in arguments if each.startswith("-")]
    return below([each for each in arguments if not each.startswith("-")]) and not below(left_out)


def test_each_test_is_in_one_part():
    found = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    files = [file for file in found if file.startswith(("tests/unit/", "tests/integration/"))]
    assert len(files) > 100
    for file in files:
        assert len([part for part in parts.PARTS if chosen(parts.PARTS[part], file)]) == 1, file
    grouped = {part for groups in parts.GROUPS.values() for group in groups for part in group}
    assert grouped == parts.PARTS.keys()


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder whose pytest only prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "pytest").write_text(PYTEST)
    (tmp_path / "pytest").chmod(0o755)
    return tmp_path


def test_a_part_next_to_another_prints_at_its_end(here, monkeypatch, capfd):
    assert here.is_dir()
    names = ["test-unit-one", "test-unit-two", "test-promises"]
    tests = dict(zip(names, (["first"], ["second"], ["third"]), strict=True))
    monkeypatch.setattr(parts, "PARTS", tests)
    assert parts.main(["test"]) == 1
    out = capfd.readouterr().out.splitlines()
    table = "--costs=.pytest_cache/costs/test-promises.tsv"
    outcome = "--outcome=.pytest_cache/outcomes/test-promises.json"
    assert f"third: {table} {outcome} third" in out
    second = out.index("second begins")
    assert out[second + 1] == "second ends"
    assert out.index("first begins") < out.index("first ends")
    assert out[-1] == "No test was skipped."  # not what the tests lack, since one failed
    tests["test-unit-two"] = ["third"]
    assert parts.main(["test"]) == 0
    assert capfd.readouterr().out.splitlines()[-1].startswith("Not run: jobs in depth")


def test_a_second_try_and_another_machine_know_all_parts(here, monkeypatch, capfd):
    tried: list[Path] = []

    def try_again(files: list[Path], *_: object) -> int:
        tried.extend(files)
        return 0

    monkeypatch.setattr(parts, "PARTS", {name: ["third"] for name in parts.PARTS})
    monkeypatch.setattr(again, "main", try_again)
    (here / "outcomes").mkdir()
    with pytest.raises(SystemExit):
        parts.main(["test-rest", "--from", "outcomes"])
    (here / "outcomes" / "a.json").write_text(json.dumps({"skipped": {"no Go": ["third::a"]}}))
    for given, names in (
        (["test", "--from", "outcomes"], "promises unit-one unit-two"),
        (["test-rest"], "rest-docker rest-two rest-one rest-three rest-pods rest-rented"),
        (
            ["test-rest", "--from", "outcomes"],
            "rest-docker rest-two rest-one rest-three rest-skipped rest-pods rest-rented",
        ),
    ):
        tried.clear()
        assert parts.main([*given, "--again"]) == 0
        assert [file.stem for file in tried] == [f"test-{name}" for name in names.split()]
        assert {file.parent for file in tried} == {Path(".pytest_cache/outcomes")}
    assert parts.main(["test-rest", "--from", "outcomes"]) == 0
    assert "tests/integration/infra/test_stack.py third::a\n" in capfd.readouterr().out


def test_a_landing_that_leaves_nothing_of_a_part_passes(here, monkeypatch, capfd):
    assert here.is_dir()
    monkeypatch.setattr(parts, "PARTS", {name: ["nothing"] for name in parts.PARTS})
    assert parts.main(["test-rest", "--landing", "chosen"]) == 0
    assert "nothing: --costs=" in capfd.readouterr().out
    assert parts.main(["test-rest"]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_part_ends_before_the_signalled_program(here, number):
    code = "import runpy, sys; sys.executable = 'here/python'; "
    code += "runpy.run_module('tests.parts', run_name='__main__', alter_sys=True)"
    (here / "here").symlink_to(".")
    with subprocess.Popen(
        [REAL, "-c", code, "test-rest-pods"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    ) as process:
        wait_for("the part", (here / "begun").exists)
        # A terminal sends its Ctrl-C to all programs, `make` a SIGTERM to those that it started.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        assert process.wait(30) == 130
    assert (here / "ended").exists()
