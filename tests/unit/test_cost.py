"""The cost of a test includes everything that it started."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests import cost

BURN_S = 0.3
TESTS = f"""
import os, subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < {BURN_S}: pass\\n"

@pytest.fixture
def service():
    yield
    subprocess.run([sys.executable, "-c", BURN], check=True)

def test_that_detaches(tmp_path, service):
    done = tmp_path / "done"
    code = BURN + f"open({{str(done)!r}}, 'w')"
    if os.fork() == 0:  # what it starts has nobody that waits for it
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        os._exit(0)
    os.wait()
    while not done.exists():
        time.sleep(0.01)

def test_that_does_little():
    pass
"""


def run(tests: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.cost", "-p", "no:cacheprovider"]
    root = Path(__file__).parents[2]
    return subprocess.run(
        [*command, *arguments, f"--rootdir={tests.parent}", str(tests)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )


def test_tests_and_fixtures_are_counted_with_what_detached(tmp_path):
    meter = cost.Meter()
    counts_all = meter.group is not None
    meter.end()
    if not counts_all:
        pytest.skip("no control group can be made here (root, control groups of version 2)")
    tests, table = tmp_path / "test_dear.py", tmp_path / "costs.tsv"
    tests.write_text(TESTS)

    said = run(tests, "--costs", str(table)).stdout

    with table.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = {(row["part"], row["name"]): float(row["processor_s"]) for row in rows}
    whole, ended = found["all", ""], found["teardown", "test_dear.py::service"]
    detached = found["test", "test_that_detaches"]
    assert detached >= BURN_S
    assert ended >= BURN_S
    assert found["test", "test_that_does_little"] < BURN_S
    assert whole >= detached + ended
    assert whole == pytest.approx(sum(found.values()) - whole, abs=0.5)
    assert said.index("test_that_detaches") < said.index("test_that_does_little")
    assert dict(cost.by_file([table]))["test_dear.py"][0] >= 2 * BURN_S


def test_an_interrupted_session_ends_its_fixtures_without_an_error(tmp_path):
    tests = tmp_path / "test_cut.py"
    fixture = "import pytest\n@pytest.fixture(scope='session')\ndef service(): yield\n"
    tests.write_text(f"{fixture}def test_it(service): raise KeyboardInterrupt\n")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(tests, f"--costs={tmp_path / 'costs.tsv'}")
    assert caught.value.returncode == pytest.ExitCode.INTERRUPTED
    assert "closed file" not in caught.value.stdout + caught.value.stderr
