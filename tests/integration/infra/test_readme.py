"""The README's promises about a stack and its jobs, each once, on the stack that tests share.

Only these tests and `test_stack.py` use real services in `make test`; `make test-all` has deeper
ones.
"""

import json
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests import quick
from tests.integration.infra import drilled
from trainyard.client import outputs as contract
from trainyard.client.store import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

WORKER = "ray::RayTrainWorker"  # Ray's name of a process that trains


def test_drift_is_seen_by_refresh_and_mended_by_up(stack):  # F20
    stack.engine("preview", "--refresh", "--expect-no-changes")
    changed = stack.folder / "ray-worker-0" / "files" / "ray_start.py"
    kept = changed.read_bytes()
    changed.write_text("raise SystemExit\n")
    seen = stack.engine("preview", "--refresh", "--expect-no-changes", check=False)
    assert seen.returncode == 1
    assert "ray-worker-0" in seen.stdout
    stack.engine("refresh", "--yes")
    stack.engine("up", "--yes")
    assert changed.read_bytes() == kept
    stack.engine("preview", "--refresh", "--expect-no-changes")


def test_a_killed_up_is_finished_by_the_next_one(stack, started_below, wait_for):  # F12
    stack.change(worker={"cpus": 1, "resources": {"tag": 1}})
    (state,) = stack.project.parent.glob("backend/.pulumi/stacks/*/test.json")
    process = subprocess.Popen(
        [stack.python, *quick.module("engine"), "-C", stack.project, "up", "--yes", "-s", "test"],
        cwd=stack.project,
        env=stack.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: "pending_operations" in state.read_text(), 60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert "was interrupted" in stack.engine("up", "--yes").stdout
    raylets = [each for each in started_below(stack.folder) if each.name() == "raylet"]
    assert len(raylets) == 2
    assert any("tag,1" in word for each in raylets for word in each.cmdline())
    stack.engine("up", "--yes", "--refresh", "--expect-no-changes")


def test_a_run_outlives_its_worker(  # F21
    train, outputs_file, stack, started_below, wait_for, tmp_path
):
    go = tmp_path / "go"
    script = str(Path(drilled.__file__))
    submit = train("submit", script, "--name", "lost", "--", "--epochs", "5", "--go", str(go))
    store = open_store(contract.read(None, outputs_file))
    wait_for(lambda: (store.get("lost/metrics.jsonl") or b"").count(b"\n") == drilled.HELD, 150)

    def worker() -> psutil.Process | None:
        raylets = [each for each in started_below(stack.folder) if each.name() == "raylet"]
        below = [child for raylet in raylets for child in raylet.children()]
        # Ray writes a process's task over its arguments.
        return next((each for each in below if WORKER in "".join(each.cmdline())), None)

    wait_for(worker).kill()
    go.touch()
    out, said = submit.communicate(timeout=200)
    assert submit.returncode == 0, out + said
    assert re.search(
        rf"Restored from checkpoint \S+/lost/checkpoint_\S+: {drilled.HELD} epochs", out
    )
    shown = train("show", "lost", "--json").communicate(timeout=60)[0]
    assert [record["epoch"] for record in json.loads(shown)["metrics"]] == [0, 1, 2, 3, 4]


def test_a_job_that_fails_and_one_that_does_not_exist(train, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('the data is gone')\n")
    process = train("submit", str(script))
    out, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "the data is gone" in out
    assert "Traceback" not in said
    process = train("submit", "no_such_job")  # F2
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no_such_job" in said
    assert "Traceback" not in said
