"""What `make` says by itself, and what of `make demo` runs beside what."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INNER = {"help", "python", "store"}  # of no use to type
# Each waits until the other has begun, but not for ever; so both pass only side by side.
MEET = """
meet() {{ touch {folder}/$1; for _ in $(seq 100); do [ -e {folder}/$2 ] && return; sleep 0.1; done
          echo "$2 has not begun" >&2; exit 1; }}
"""
PYTHON = """#!/bin/sh
{meet}
echo "$*" >> {folder}/log
case "$*" in
*venv*) mkdir -p .venv/bin
  for name in pip train python; do cp "$0" .venv/bin/$name; done; cp {folder}/uv.sh .venv/bin/uv ;;
*go_build*) echo "building the store"; meet store packages; exit {store} ;;
esac
"""
UV = """#!/bin/sh
{meet}
case "$*" in
*dev.txt*) echo "Downloading torch (846.6MiB)"; echo " + torch==2" >&2; meet packages store
  exit {packages} ;;
esac
"""


@pytest.fixture
def run(tmp_path: Path):
    """Runs make in a checkout whose programs only note that they were called."""

    def make(*arguments: str, **codes: int) -> tuple[int, str, list[str]]:
        checkout = tmp_path / "checkout"
        (checkout / "requirements").mkdir(parents=True, exist_ok=True)
        for name in ("Makefile", "pyproject.toml", *map(str, _requirements())):
            shutil.copy(ROOT / name, checkout / name)
        values = {"meet": MEET.format(folder=tmp_path), "folder": tmp_path, "store": 0}
        values |= {"packages": 0} | codes
        for name, text in (("python.sh", PYTHON), ("uv.sh", UV)):
            path = tmp_path / name
            path.write_text(text.format(**values))
            path.chmod(0o755)
        done = subprocess.run(
            ["make", f"PYTHON={tmp_path}/python.sh", *arguments],
            cwd=checkout,
            env={name: value for name, value in os.environ.items() if "MAKE" not in name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        log = tmp_path / "log"
        return done.returncode, done.stdout, log.read_text().splitlines() if log.exists() else []

    return make


def _requirements() -> list[Path]:
    return [path.relative_to(ROOT) for path in (ROOT / "requirements").glob("*.txt")]


def test_make_alone_tells_each_target_in_a_line(run) -> None:
    code, said, calls = run()
    assert (code, calls) == (0, [])
    told = [re.match(r"make ([\w-]+)  +\S", line)[1] for line in said.splitlines()]
    lists = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(told) == sorted(set(" ".join(lists).split()) - INNER)


def test_the_store_is_built_while_packages_are_installed(run) -> None:
    code, said, calls = run("demo")
    assert code == 0, said
    assert said.startswith("make demo: a Ray cluster on this machine")  # what, and how long
    assert "building the store" in said
    assert "Downloading torch (846.6MiB)" in said
    assert " + torch" not in said  # of 190 packages
    assert "Nothing to be done" not in run("demo")[1]
    after = [call for call in calls if call.startswith(("-m engine", "submit", "info"))]
    assert [call.split()[1] for call in after] == ["engine.launch", *after[1][7:].split()[:1], "-s"]


@pytest.mark.parametrize("failing", ["store", "packages"])
def test_what_fails_of_the_two_ends_the_demo(run, failing: str) -> None:
    code, said, calls = run("demo", **{failing: 1})
    assert code == 2
    assert "Error 1" in said
    assert not [call for call in calls if "engine" in call]


def test_packages_that_are_not_whole_are_installed_again(run, tmp_path: Path) -> None:
    assert run("setup", "store", "-j2", packages=1)[0] == 2
    assert not (tmp_path / "checkout" / ".venv" / ".ready").exists()


def test_a_plan_and_a_policy_are_passed_on(run) -> None:
    def launched(*arguments: str) -> str:
        said = run("--dry-run", *arguments)[1]
        return re.search(r"engine\.launch (.*?) *$", said, re.MULTILINE)[1]

    assert launched("preview", "PLAN=a b.json") == "preview -s dev --plan 'a b.json'"
    assert launched("up", "STACK=lab") == "up -s lab"
    rules = launched("up", "POLICY=policy", "LEVELS=levels.json")
    assert rules == "up -s dev  --policy-pack 'policy' --policy-pack-config 'levels.json'"
