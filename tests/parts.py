"""The parts of the tests: `python -m tests.parts test|test-unit|test-rest|PART`, as `make` runs it.

Parts run at the same time: the first of them prints as it goes, another one prints its whole output
at its end. Each test is in one part. `--landing FILE` leaves out the long tests that
`tests/landings.py` has not chosen.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests import again

INFRA = "tests/integration/infra"
# For newcomers: all unit tests, and the README's promises on one real stack.
PROMISES = [f"{INFRA}/test_readme.py", f"{INFRA}/test_stack.py"]
# One half of the unit tests.
UNIT = ["tests/unit/trainyard", "tests/unit/training", "tests/unit/docker"]
# Pods and rented machines that come and go miss deadlines of Kubernetes and Ray on a busy machine:
# these run last.
PODS = [f"{INFRA}/kubernetes"]
RENTED = [f"{INFRA}/test_workflows.py", f"{INFRA}/lambda_cloud/test_groups.py"]
# The rest in parts of similar length.
TRAINING = sorted(map(str, Path("tests/integration/training").glob("test_*.py")))
ONE = [path for path in TRAINING if Path(path).name < "test_g"]
TWO = [path for path in TRAINING if path not in ONE]
CLOUD = sorted(map(str, Path(f"{INFRA}/lambda_cloud").glob("test_*.py")))
ONE += [path for path in CLOUD if not path.endswith("containers.py")]
ONE += [f"{INFRA}/test_autoscaling.py"]
HOSTS = [f"{INFRA}/hosts/test_{name}.py" for name in ("environment", "ssh", "stack")]
TWO += HOSTS
THREE = ["tests/integration/machines", f"{INFRA}/test_pages.py"]
ALONE = ("drill", "health", "process", "replica", "reservation", "tracking")
THREE += [f"{INFRA}/test_{name}.py" for name in ALONE]
ELSEWHERE = [*PROMISES, *ONE, *TWO, *THREE, *PODS, *RENTED]
PARTS = {
    "test-unit-one": UNIT,
    "test-unit-two": ["tests/unit", *(f"--ignore={path}" for path in UNIT)],
    "test-promises": PROMISES,
    "test-rest-one": [*ONE, f"--deselect={RENTED[1]}"],
    # All tests that need the Docker Engine, because a test restarts it.
    "test-rest-docker": [
        *("tests/integration/docker", "tests/integration/engine", INFRA),
        *(f"--deselect={path}" for path in ELSEWHERE if path.startswith(INFRA)),
    ],
    "test-rest-two": TWO,
    "test-rest-three": THREE,
    "test-rest-pods": PODS,
    "test-rest-rented": RENTED,
}
SKIPPED = "test-rest-skipped"
# Parts that run at the same time, two at once: with three, Ray misses deadlines on two cores. A
# group begins after the one before.
GROUPS = {
    "test-unit": [["test-unit-one", "test-unit-two"]],
    "test": [["test-promises", "test-unit-one", "test-unit-two"]],
    "test-rest": [
        ["test-rest-docker", "test-rest-two", "test-rest-one", "test-rest-three"],
        ["test-rest-pods", "test-rest-rented"],
    ],
}
CACHE = Path(".pytest_cache")


def run(part: str, arguments: Sequence[str], log: Path | None) -> bool:
    """Run a part; return whether it passed. A part with a log prints that at its end."""
    command = [str(Path(sys.executable).with_name("pytest"))]
    command += [f"--costs={CACHE}/costs/{part}.tsv"]
    command += [f"--outcome={CACHE}/outcomes/{part}.json", *arguments]
    if log is None:
        code = subprocess.call(command)
    else:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        sys.stdout.buffer.write(log.read_bytes())
        sys.stdout.flush()
    # A landing may leave nothing of a part; otherwise a part without tests is a mistake.
    nothing = any(each.startswith("--landing=") for each in arguments)
    return code == pytest.ExitCode.OK or (nothing and code == pytest.ExitCode.NO_TESTS_COLLECTED)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.parts", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("name", choices=[*GROUPS, *PARTS])
    parser.add_argument("--again", action="store_true", help="only what failed, alone")
    parser.add_argument("--landing", metavar="FILE", help="what tests/landings.py has chosen")
    parser.add_argument("--from", dest="folder", type=Path, help="outcomes of another machine")
    parsed = parser.parse_args(arguments)
    groups, tests = [*GROUPS.get(parsed.name, [[parsed.name]])], PARTS.copy()
    if parsed.folder and parsed.name == "test-rest":
        if not (files := sorted(parsed.folder.glob("*.json"))):
            parser.error(f"{parsed.folder} has no outcomes of tests (*.json)")
        # Assertions about a stack depend on what it runs: its tests are for both machines.
        missed = [test for each in again.skipped(files).values() for test in each]
        tests[SKIPPED] = [f"{INFRA}/test_stack.py", *missed]
        groups[0] = [*groups[0], SKIPPED]
    outcomes = [CACHE / "outcomes" / f"{part}.json" for group in groups for part in group]
    if parsed.again:
        return again.main(outcomes, subprocess.call, print)
    chosen = [f"--landing={parsed.landing}"] if parsed.landing else []
    passed = True
    for group in groups:
        logs = [None, *(CACHE / "logs" / f"{part}.txt" for part in group[1:])]
        with ThreadPoolExecutor(2) as pool:
            # An interrupt cancels the parts that have not begun.
            passed &= all(
                list(pool.map(run, group, [[*chosen, *tests[part]] for part in group], logs))
            )
    print(*again.summary(again.skipped(outcomes)), sep="\n")  # noqa: T201
    if passed and parsed.name == "test":
        lacks = "jobs in depth, containers, other machines, a fake cloud, faults one by one"
        print(f"Not run: {lacks}. make test-all runs all that this machine can.")  # noqa: T201
    return int(not passed)


def _end(*_: object) -> None:
    for part in psutil.Process().children():
        part.terminate()
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # the parts had it too, and have ended
        sys.exit(128 + signal.SIGINT)
