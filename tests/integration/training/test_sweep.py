"""Hydra's own suite for launchers, against a real cluster, and tests that it lacks."""

import csv
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins
from hydra.extra.pytest_plugin import (  # noqa: F401 - fixtures of the suite
    hydra_restore_singletons,
    hydra_sweep_runner,
)
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

from hydra_plugins.ray_launcher.launcher import RayLauncher
from tests import pages
from tests.waiting import wait_for

(GRID,) = pages.read_by(__file__)
SWEPT = Path(__file__).with_name("swept.py")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]


def sweep(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Starts a sweep in a folder."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def on_the_cluster(cluster, monkeypatch) -> None:
    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)


def test_hydra_finds_the_launcher():
    # Hydra runs the modules of plugins by itself: its class is another object.
    found = {each.__qualname__ for each in Plugins.instance().discover(Launcher)}
    assert RayLauncher.__qualname__ in found


@pytest.mark.parametrize(("launcher_name", "overrides"), [("ray", [])], ids=["job"])
class TestLauncher(LauncherTestSuite):
    """A job of its own each."""


@pytest.mark.parametrize(
    ("launcher_name", "overrides"), [("ray", ["hydra.sweeper.max_batch_size=2"])], ids=["job"]
)
class TestBatches(BatchedSweeperTestSuite):
    """A job of its own each."""


class OnANode:
    """A folder of a node, whose beginning nobody knows."""

    def __truediv__(self, below: str) -> str:
        return f".*/{re.escape(below)}"


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"), [({}, ["-m", "hydra/launcher=ray"])], ids=["ray"]
)
class TestScripts(IntegrationTestSuite):
    """Scripts as users start them."""

    def get_test_app_working_dir(self) -> Any:
        return OnANode()


def test_a_sweep_of_models_is_six_jobs(cluster, tmp_path):  # B15 B16 B23
    before = set(cluster.jobs())
    (command,) = GRID.of("python")
    process = sweep(tmp_path, *command, "data.limit=64", "train.epochs=1")
    out, _ = process.communicate()
    assert process.returncode == 0, out
    jobs = {name: job for name, job in cluster.jobs().items() if name not in before}
    assert len(jobs) == 6
    assert {job["status"] for job in jobs.values()} == {"SUCCEEDED"}
    assert "points: 4 sent, 2 in the queue until the cluster has room" in out
    assert "warning" not in out  # each keeps its model
    assert re.search(r"^\[5\] epoch 1: loss ", out, re.MULTILINE)
    for job in jobs.values():  # each point is a run
        assert "SUCCEEDED" in cluster.done("show", job["metadata"]["run"])
    folder = tmp_path / "multirun" / "train_model"
    accuracies = [float(row["valid_acc"]) for row in table(folder)]
    assert len(accuracies) == 6
    assert accuracies == sorted(accuracies, reverse=True)
    assert (folder / "results.png").read_bytes().startswith(b"\x89PNG")


def test_let_go_and_go_on(cluster, tmp_path):  # B18 B19 B23
    gate = tmp_path / "gate"
    where = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    command = (str(SWEPT), "-m", "hydra/launcher=ray", where, "x=0,1,2", f"wait_for={gate}")
    first = sweep(tmp_path, *command)
    wait_for("two points", lambda: len(list(tmp_path.glob("gate.*"))) == 2)
    first.send_signal(signal.SIGINT)
    out, _ = first.communicate()
    assert first.returncode == 130, out
    let_go = re.findall(r"follow: `\S*train logs -f (\w+)[^`]*`; stop: `\S*train stop \1\b", out)
    assert len(let_go) == 3, out
    gate.touch()
    second = sweep(tmp_path, *command)
    out, _ = second.communicate()
    assert second.returncode == 1, out  # point 2 fails, and keeps no other
    assert "failed: [2] x=2" in out
    assert "ValueError: two is too much" in out
    rows = table(tmp_path / "sweep")
    assert [row["x"] for row in rows] == ["1", "0", "2"]
    assert (tmp_path / "sweep" / "1" / "left.txt").read_text() == "x"
    sent = [job for job in cluster.jobs().values() if job["metadata"].get("script") == str(SWEPT)]
    # The second start followed exactly the detached jobs; a failed one may be new.
    assert {job["submission_id"] for job in sent} >= set(let_go)
    assert len(sent) <= 4
    assert cluster.keys(".trainyard/sweeps") == []


def test_tasks_run_again_after_a_change_in_a_module(cluster, tmp_path):  # F54
    code, folder = tmp_path / "code", tmp_path / "code" / "sweep"
    code.mkdir()
    shutil.copy(SWEPT, code)
    task = ("hydra/launcher=ray", "hydra.launcher.unit=task", "hydra.launcher.metric=loss")
    points = (f"hydra.sweep.dir={folder}", "x=0,1,3", "module=swept_loss")

    def run(loss: int, *more: str) -> tuple[str, int, list[str]]:
        """Returns the output, the number of sent jobs, and the losses of the table."""
        (code / "swept_loss.py").write_text(f"def of(x):\n    return {loss} - x\n")
        before = len(cluster.jobs())
        process = sweep(tmp_path, str(code / SWEPT.name), "-m", *task, *points, *more)
        out, _ = process.communicate()
        assert process.returncode == 0, out
        return out, len(cluster.jobs()) - before, [row["loss"] for row in table(folder)]

    out, *first = run(10)
    assert first == [1, ["7", "9", "10"]]
    assert re.search(r"\[1\].* x is 1$", out, re.MULTILINE)
    out, *changed = run(20, "hydra.sweeper.max_batch_size=2")
    assert f"{folder} had another sweep, which is in {folder / 'earlier' / '1'} now" in out
    assert changed == [2, ["17", "19", "20"]]  # both batches are in the table
    assert [row["loss"] for row in table(folder / "earlier" / "1")] == ["7", "9", "10"]
    out, *back = run(10)
    assert "points: 3 of 3 are done already" in out
    assert back == [0, ["7", "9", "10"]]


@pytest.mark.parametrize("unit", ["job", "task"])
def test_points_come_back_without_a_store(cluster, tmp_path, unit):  # B16 B18
    outputs = cluster.write_outputs("bare.json", project="", storageUrl="")
    where = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    more = (f"hydra.launcher.unit={unit}", f"hydra.launcher.outputs={outputs}", where, "x=0,1,2")
    process = sweep(tmp_path, str(SWEPT), "-m", "hydra/launcher=ray", *more)
    out, _ = process.communicate()
    assert process.returncode == 1, out
    assert "failed: [2] x=2: ValueError: two is too much" in out
    assert [row["loss"] for row in table(tmp_path / "sweep")] == ["0.5", "1.0", ""]
    for point in ("0", "1"):
        assert (tmp_path / "sweep" / point / "left.txt").read_text() == "x"
    assert cluster.keys(".trainyard/sweeps") == []


def test_the_other_launcher_runs_the_same_script_here(tmp_path):  # B28
    where = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    process = sweep(tmp_path, str(SWEPT), "-m", "hydra/launcher=submitit_local", where, "x=0,1")
    out, _ = process.communicate()
    assert process.returncode == 0, out
    for point in ("0", "1"):
        assert (tmp_path / "sweep" / point / "left.txt").read_text() == "x"


def test_a_point_too_large_is_refused_and_the_others_run(tmp_path):
    where = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    cpus = "hydra.launcher.num_cpus=${x}"
    process = sweep(tmp_path, str(SWEPT), "-m", "hydra/launcher=ray", where, "x=1,99", cpus)
    out, _ = process.communicate()
    assert process.returncode == 1
    assert "asks for CPU 99 on one node, which no node has" in out
    assert [row["x"] for row in table(tmp_path / "sweep")] == ["1", "99"]
