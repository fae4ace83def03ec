"""Which long tests run at a landing: `python -m tests.landings choose LEDGER UNTIL`, as in CI.

`record LEDGER` notes at the end what ran.

The long tests do not all fit into CI's hour. PROOFS run at each landing, and so does each file that
the change touches (TOUCHES). The other files take turns: the one that has not run for longest comes
first, as far as there is ROOM. The ledger is a file that CI keeps: it says at which landing and
commit each file last passed, what it cost, and when it was skipped. Without it, the change is that
of the last day, and chance picks the order. A proof that did not run, and was not skipped either,
fails the run.

`--landing FILE` has pytest run, of the files that FILE lists, the proofs only. CI ends after 90
minutes, and a machine may be three times as slow as on another day. So there is less room on a slow
machine. And of the chosen files only those that are overdue begin after UNTIL, in s since 1970: the
tests of another one are skipped, and it keeps its turn.
"""

import csv
import functools
import hashlib
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests import again, cost, ran

ROOT = Path(__file__).parents[1]
FOLDER = "tests/integration/"
CACHE = Path(".pytest_cache")
CHOSEN = CACHE / "landing.json"
LATE = "a long test, and no time is left for it in this run of CI"
# Reasons why a long file runs whole, in order, each with the processor seconds that it and those
# before may take, together with proofs and short tests, which take BASE.
ROOM = {"overdue": inf, "touched": 3600.0, "by turn": 3100.0}
BASE = 1400.0
# What a machine that is not slow takes to start a Python that imports urllib3: P18's plain way.
START_S, STARTS = 0.085, 5
DAY_S = 86_400
OLDEST = 8  # a file that has not run for so many landings fails the run
# The long files with a first guess of their processor seconds, until a run has measured them.
LONG = {
    "docker/test_images.py": 90,
    "infra/docker/test_bad_input.py": 30,
    "infra/docker/test_gateway.py": 70,
    "infra/docker/test_lab.py": 400,
    "infra/docker/test_queue.py": 330,
    "infra/hosts/test_containers.py": 100,
    "infra/hosts/test_environment.py": 40,
    "infra/hosts/test_ssh.py": 60,
    "infra/hosts/test_stack.py": 300,
    "infra/kubernetes/test_bad_input.py": 40,
    "infra/kubernetes/test_kueue.py": 130,
    "infra/kubernetes/test_manifests.py": 70,
    "infra/kubernetes/test_node.py": 20,
    "infra/kubernetes/test_rays_image.py": 300,
    "infra/kubernetes/test_stack.py": 720,
    "infra/lambda_cloud/test_containers.py": 100,
    "infra/lambda_cloud/test_groups.py": 100,
    "infra/lambda_cloud/test_stack.py": 530,
    "infra/test_autoscaling.py": 80,
    "infra/test_drill.py": 320,
    "infra/test_health.py": 110,
    "infra/test_pages.py": 440,
    "infra/test_process.py": 200,
    "infra/test_pulumi_cli.py": 90,
    "infra/test_queue.py": 250,
    "infra/test_replica.py": 60,
    "infra/test_reservation.py": 60,
    "infra/test_rotate.py": 80,
    "infra/test_tracking.py": 80,
    "infra/test_workflows.py": 120,
    "machines/test_box.py": 80,
    "machines/test_gcp.py": 50,
    "training/test_alexnet.py": 170,
    "training/test_chargpt.py": 60,
    "training/test_elastic.py": 60,
    "training/test_examples.py": 530,
    "training/test_faults.py": 140,
    "training/test_food11.py": 300,
    "training/test_infeasible.py": 60,
    "training/test_plain_ray.py": 150,
    "training/test_quickstart.py": 100,
    "training/test_serve.py": 120,
    "training/test_sweep.py": 160,
    "training/test_ui.py": 60,
}
# One way through each page that began the project, and through each place. `make test` has the
# place that is this machine.
PROOFS = {
    # docs/poc.md, on rented machines
    "infra/lambda_cloud/test_stack.py": "test_alexnet_is_trained_as_on_the_page",
    # docs/practical.md, with a sweep
    "training/test_plain_ray.py": "test_the_practical_on_a_plain_ray",
    "training/test_sweep.py": "test_a_sweep_of_models_is_six_jobs",
    # docs/box.md
    "machines/test_box.py": "test_a_bare_machine_becomes_a_box_that_survives_a_restart",
    # docs/course.md and docs/lab.md, in containers
    "infra/docker/test_lab.py": (
        "test_the_courses_job_goes_on_at_the_other_worker_from_its_checkpoint"
    ),
    # docs/kubernetes.md, with the real operator
    "infra/kubernetes/test_stack.py": (
        "test_a_job_starts_workers_survives_one_that_is_killed_and_they_go"
    ),
    # docs/hosts.md
    "infra/hosts/test_stack.py": "test_a_job_uses_both_machines_from_here",
}
# Words in the path of a changed file, and the long files that they touch. Besides, a long file is
# touched by itself and by the helpers in its folder. What no rule names is proven by PROOFS.
TOUCHES = (
    (r"kubernetes|kuberay|kueue|helm", r"infra/kubernetes/"),
    (r"lambda_cloud|rented|cloud_init", r"infra/lambda_cloud/"),
    (r"infra/machines/|/ssh|fakes/sshd", r"infra/hosts/"),
    (r"container|docker_stack|^docker/", r"infra/docker/|docker/test_images|/test_containers"),
    (r"gateway", r"docker/test_gateway"),
    (r"mlflow|tracking", r"test_tracking|test_alexnet"),
    (r"rotate|secret", r"test_rotate"),
    (r"reservation|ending|deadline", r"test_reservation"),
    # It ends what a stack has in each place.
    (r"node/ending", r"hosts/test_containers|docker/test_lab|(kubernetes|cloud)/test_stack"),
    (r"node/ending", r"test_process"),
    (r"supervis|machines/process|infra/service/", r"test_process|infra/test_health"),
    (r"node/(process_health|life|owned_processes|folders)", r"test_process|infra/test_health"),
    (r"node/(claims|ports|programs)", r"test_process|infra/test_health"),
    (
        r"node/idle_watch|cluster/idle_end",
        r"cloud/test_stack|test_reservation|docker/test_queue|s_image",
    ),
    (r"health", r"infra/test_health"),
    (r"node_(provider|switch)|autoscal|scale", r"test_autoscaling|lambda_cloud/test_groups"),
    (r"gitops|review|policy|^\.github/", r"test_workflows"),
    (r"replica|trainyard/store/|supervis", r"test_replica"),
    (r"trainyard/store/", r"lambda_cloud/test_stack"),  # the idle watch reads it
    (r"drill", r"test_drill"),
    (r"queue", r"(infra|docker)/test_queue"),
    (r"notebook|jupyter|job_record", r"test_tracking|docker/test_lab"),
    (r"quickstart", r"test_quickstart|test_box|test_gcp"),
    (r"trainyard/(job|options|ray_train)", r"test_elastic"),
    (r"food11|trainyard/search/", r"test_food11"),
    (r"training/alexnet", r"test_alexnet"),
    (r"training/[a-z_]+\.py$", r"test_examples"),
    (r"chargpt", r"test_chargpt"),
    (r"serving|serve", r"test_serve"),
    (r"sweep|hydra_plugins", r"test_sweep"),
    (r"attach", r"test_plain_ray"),
    (r"client/ui/", r"test_ui"),
    (r"checkpoint|failpoints|trainyard/(store|resume)/", r"test_faults"),
    (r"client/(feasibility|waiting)", r"test_infeasible"),
    (r"^engine/", r"test_pulumi_cli"),
    (r"^docs/[a-z]+\.md$|^README", r"test_pages"),
)


@dataclass(frozen=True)
class Run:
    """When a long file last passed as a whole: the number of the landing, and the cost.

    That is in processor seconds of a machine that is not slow, as all of them here.
    """

    landing: int  # 0: it never did
    commit: str
    seconds: float
    skipped: int = 0  # the landing since then at which this machine last skipped it


@dataclass(frozen=True)
class Ledger:
    """What CI keeps from landing to landing; the number is that of the last one."""

    landing: int
    runs: dict[str, Run]


def read(file: Path) -> Ledger:
    """Return what a ledger says; an empty one if it is missing or broken."""
    try:
        found = json.loads(file.read_text())
        runs = {name: Run(**run) for name, run in found["runs"].items() if name in LONG}
        return Ledger(int(found["landing"]), runs)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Ledger(0, {})


def touched(file: str, changed: Iterable[str]) -> bool:
    """Whether the proof of a long file may have changed with some files."""
    rules = [words for words, files in TOUCHES if re.search(files, file)]
    folder, own = f"{FOLDER}{Path(file).parent}/", FOLDER + file
    for path in changed:
        if path.startswith("tests/"):
            helps = path.startswith(folder) and not Path(path).name.startswith("test_")
            if path == own or helps:
                return True
        if not path.startswith("tests/unit/") and any(re.search(each, path) for each in rules):
            return True
    return False


def choose(
    ledger: Ledger, head: str, changed: Callable[[str], list[str] | None], slow: float = 1.0
) -> tuple[dict[str, str], dict[str, str]]:
    """Choose the long files that run whole.

    Args:
        ledger: the record of the landings so far.
        head: the commit, which decides between files that ran at the same landing.
        changed: the files that changed since a commit; None if it is not known here. Where no run
            or no commit is known, it is asked for "".
        slow: how many times as long work takes here as on a machine that is not slow.

    Returns:
        The chosen files with the reason of each, and the others with theirs.
    """

    def reason(file: str) -> str:
        run = ledger.runs.get(file)
        if run and run.landing and ledger.landing + 1 - run.landing >= OLDEST - 1:
            return "overdue"
        files = changed(run.commit) if run else None
        if files is None:
            files = changed("") or []
        return "touched" if touched(file, files) else "by turn"

    def order(file: str) -> tuple[int, int, str]:
        run = ledger.runs.get(file)
        chance = hashlib.sha256(f"{head} {file}".encode()).hexdigest()
        turn = max(run.landing, run.skipped) if run else 0
        return [*ROOM].index(reasons[file]), turn, chance

    reasons = {file: reason(file) for file in LONG}
    whole: dict[str, str] = {}
    for file in sorted(LONG, key=order):
        room = ROOM[reasons[file]] / slow - BASE
        if sum(_seconds(ledger, each) for each in (*whole, file)) <= room:
            whole[file] = reasons[file]
    return whole, {file: reasons[file] for file in LONG if file not in whole}


def slowness() -> float:
    """Return how many times as long work takes here as on a machine that is not slow, or 1."""

    def start() -> float:
        began = time.perf_counter()
        ran.output([sys.executable, "-c", "import urllib3"])
        return time.perf_counter() - began

    return max(1.0, statistics.median(start() for _ in range(STARTS)) / START_S)


def _seconds(ledger: Ledger, file: str) -> float:
    run = ledger.runs.get(file)
    return run.seconds if run else float(LONG[file])


def table(ledger: Ledger, whole: dict[str, str], left: dict[str, str]) -> list[str]:
    """Return the lines that say which long files run, and since when each has not run whole."""
    lines = [f"Landing {ledger.landing + 1}: long tests, their processor seconds, their last run"]
    for file in (*sorted(whole, key=lambda each: (whole[each], each)), *left):
        run = ledger.runs.get(file)
        why = "proof only" if file in PROOFS else "not run"
        why += ", no room" if left.get(file) == "touched" else ""
        since = f"landing {run.landing}, {run.commit[:10]}" if run else "not known here"
        if run and run.skipped:
            since = f"skipped here, landing {run.skipped}"
        seconds = f"{_seconds(ledger, file):5.0f} s"
        lines.append(f"{whole.get(file, why):19} {seconds}  {since:24}  {file}")
    return lines


def record(
    ledger: Ledger,
    head: str,
    ran: Iterable[str],
    costs: dict[str, float],
    skipped: Iterable[str] = (),
) -> Ledger:
    """Return the ledger after a landing at which some files passed, and some were skipped whole."""
    landing = ledger.landing + 1
    new = {file: Run(landing, head, costs.get(file, _seconds(ledger, file))) for file in ran}
    for file in skipped:
        before = ledger.runs.get(file, Run(0, "", _seconds(ledger, file)))
        new[file] = replace(before, skipped=landing)
    return Ledger(landing, ledger.runs | new)


def unproven(passed: set[str], skipped: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return a line for each proof that was skipped, and for each that did not run.

    Args:
        passed: tests.
        skipped: the reason of each skipped test, or of a whole file.
    """
    done = {test.partition("[")[0] for test in passed}
    reasons = {test.partition("[")[0]: reason for test, reason in skipped.items()}
    skips, missing = [], []
    for file, test in PROOFS.items():
        proof = f"{FOLDER}{file}::{test}"
        if proof in done:
            continue
        if reason := reasons.get(proof, reasons.get(FOLDER + file)):
            skips.append(f"PROOF SKIPPED here: {FOLDER}{file} ({reason})")
        else:
            missing.append(f"PROOF NOT RUN: {proof} neither passed nor was skipped")
    return skips, missing


def overdue(ledger: Ledger) -> list[str]:
    """Return a line for each file that has not run for too many landings."""
    return [
        f"{FOLDER}{file} has not run for {ledger.landing - run.landing} landings, since "
        f"{run.commit[:10]}: see why it is skipped"
        for file, run in sorted(ledger.runs.items())
        if run.landing and ledger.landing - run.landing >= OLDEST
    ]


@functools.cache
def _changed(commit: str) -> list[str] | None:
    """Return the files that changed since a commit; without one, within a day before the newest."""
    command = ["git", "diff", "--name-only", commit, "HEAD", "--"]
    if not commit:
        newest = int(ran.output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))
        command = ["git", "log", f"--since={newest - DAY_S}", "--name-only", "--format="]
    done = ran.run(command, cwd=ROOT)
    return None if done.returncode else done.stdout.splitlines()


def _file(test: str) -> str:
    return test.partition("::")[0].removeprefix(FOLDER)


def _called(tables: Iterable[Path]) -> set[str]:
    """Return the tests that were called: their fixtures were there."""
    found = set()
    for table in tables:
        with table.open(newline="") as file:
            rows = csv.DictReader(file, delimiter="\t")
            found |= {row["test"] for row in rows if row["part"] == "test"}
    return found


def main(arguments: Sequence[str]) -> int:
    """Choose the long tests of this landing, or note that they passed."""
    command, file = arguments[0], Path(arguments[1])
    ledger, head = read(file), ran.output(["git", "rev-parse", "HEAD"], cwd=ROOT).strip()
    if command == "choose":
        slow = slowness()
        whole, left = choose(ledger, head, _changed, slow)
        CHOSEN.parent.mkdir(exist_ok=True)
        chosen = {"whole": whole, "left": left, "until": float(arguments[2]), "slow": slow}
        CHOSEN.write_text(json.dumps(chosen))
        print(f"Work takes {slow:.1f} times as long here as on a fast machine.")  # noqa: T201
        print(*table(ledger, whole, left), sep="\n")  # noqa: T201
        return 0
    files, tables = [*(CACHE / "outcomes").glob("*.json")], [*(CACHE / "costs").glob("*.tsv")]
    outcomes = [json.loads(each.read_text()) for each in files]
    skipped = {test: reason for reason, tests in again.skipped(files).items() for test in tests}
    # What failed at first has passed since, or CI would not be here.
    failed = {test for each in outcomes for test in each["failed"]}
    passed = {_file(test) for test in failed.union(*(each["passed"] for each in outcomes))}
    chosen = json.loads(CHOSEN.read_text())
    whole, slow = chosen["whole"], chosen["slow"]
    costs = {_file(name): sum(seconds[:2]) / slow for name, seconds in cost.by_file(tables)}
    late = {_file(test) for test, reason in skipped.items() if reason == LATE}
    ran_whole = passed - late
    done, rest = ([each for each in whole if (each in ran_whole) is so] for so in (True, False))
    had_turn = {_file(test) for test in skipped}.intersection(rest) - late
    ledger = record(ledger, head, done, costs, had_turn)
    skips, missing = unproven((failed | _called(tables)) - skipped.keys(), skipped)
    faults = [*missing, *overdue(ledger)]
    if lines := [*skips, *faults]:
        print(*lines, sep="\n")  # noqa: T201
    if faults:
        return 1
    written = file.with_suffix(".new")
    written.write_text(json.dumps(asdict(ledger), indent=1))
    written.replace(file)
    print(f"landing {ledger.landing} is recorded; not run here: {len(rest)}", *rest)  # noqa: T201
    return 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--landing", type=Path, metavar="FILE", help="run the tests of this landing")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption("--landing"):
        config.pluginmanager.register(_Landing(json.loads(file.read_text())), "landing")


class _Landing:
    """The plugin: leaves out the long files that this landing leaves, except their proofs."""

    def __init__(self, chosen: dict[str, Any]) -> None:
        self.left = {FOLDER + name for name in chosen["left"]}
        # Files that have not begun and may be too late.
        self.waiting = {FOLDER + name for name, why in chosen["whole"].items() if why != "overdue"}
        self.until = chosen["until"]
        self.proofs = {f"{FOLDER}{file}::{test}" for file, test in PROOFS.items()}

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Import no file of which nothing runs."""
        file = collection_path.relative_to(config.rootpath).as_posix()
        unproven = file.removeprefix(FOLDER) not in PROOFS
        return True if file in self.left and unproven else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin no file too late, before its fixtures."""
        file = item.nodeid.partition("::")[0]
        if file in self.waiting and not self._proves(item):
            if time.time() > self.until:
                pytest.skip(LATE)
            self.waiting.remove(file)

    def _proves(self, item: pytest.Item) -> bool:
        return item.nodeid.partition("[")[0] in self.proofs

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        def runs(item: pytest.Item) -> bool:
            return item.nodeid.partition("::")[0] not in self.left or self._proves(item)

        config.hook.pytest_deselected(items=[item for item in items if not runs(item)])
        items[:] = [item for item in items if runs(item)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
