"""A reservation on this machine: its timer stores runs and ends all; a later end restores it."""

import re
import shutil
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests import status
from tests.integration.infra import drilled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def alive_nodes(outputs: dict[str, Any]) -> set[str]:
    """Ids of the nodes: a restarted node has another one."""
    nodes = status.ask(f"{outputs['dashboardUrl']}/nodes?view=summary", outputs["rayToken"])
    raylets = [node["raylet"] for node in nodes["data"]["summary"]]
    return {raylet["nodeId"] for raylet in raylets if raylet.get("state") == "ALIVE"}


def test_a_reservation_stores_runs_and_ends_all_until_it_is_extended(  # D3
    stack, outputs_file, train, tmp_path, started_below, wait_for
):
    def reserve(since: float, until: float) -> Any:
        now = datetime.now(UTC)
        times = [now + timedelta(seconds=seconds) for seconds in (since, until)]
        texts = [f"{time:%Y-%m-%dT%H:%M:%SZ}" for time in times]
        times = dict(zip(("start", "end"), texts, strict=True))
        stack.change(reservation=times | {"beforeEnd": {"run": command, "seconds": 5}})
        return stack.engine("up", "--yes", check=False)

    def follow(epochs: int, line: str) -> str:
        """Submit the run, and read its log up to a line; returns what was said besides."""
        job = train("submit", script, "--name", "reserved", "--", *go, "--epochs", str(epochs))
        assert any(re.search(line, each) for each in job.stdout), job.communicate()
        job.send_signal(signal.SIGINT)
        return str(job.communicate(timeout=30)[1])

    outputs, said_at_end = stack.outputs(), tmp_path / "said"
    # With what the head's node has: the store of jobs.
    command = f'echo "$TRAINYARD_STORAGE_URL" >>{said_at_end}; sleep 60'
    script = shutil.copy(drilled.__file__, tmp_path)
    go = ("--go", str(tmp_path / "go"))
    follow(drilled.HELD + 2, rf"metrics={{'epoch': {drilled.HELD}}}")
    alive = alive_nodes(outputs)
    done = reserve(-60, 50)
    assert done.returncode == 0, done.stderr
    assert alive_nodes(outputs) == alive, "a reservation restarts nothing"
    logs = (stack.folder / "ray-head").glob("ray/session_2*/logs/job-driver-*.log")

    # Nobody is connected.
    wait_for(lambda: not started_below(stack.folder), 120)
    assert said_at_end.read_text() == f"{outputs['storageUrl']}\n"
    log = "".join(path.read_text() for path in logs)
    assert re.search(rf"Notice: .* stored up to batch {drilled.HELD_STEPS}\b", log), log
    late = stack.engine("up", "--yes", check=False)
    assert late.returncode == 1
    assert "set reservation.end to the new end" in late.stdout + late.stderr

    done = reserve(-60, 3600)
    assert done.returncode == 0, done.stdout + done.stderr
    stack.write_outputs(outputs_file.parent)
    warned = follow(drilled.HELD + 3, r"Restored from checkpoint \S*/reserved/")
    assert "stack 'test' ends itself at " in warned
    assert train("stop", "reserved").wait(60) == 0
    said, _ = train("info").communicate(timeout=60)
    row = r"reserved from +20\S+ \S+ UTC\n +ends itself +at .* UTC, in (5\d|1 h 00) min\n"
    assert re.search(row, said), said
    stack.change(idleEnd={"minutes": 1})
    stack.engine("up", "--yes")
    wait_for(lambda: not started_below(stack.folder), 240)  # B27
    assert said_at_end.read_text().count("\n") == 2
    stack.change("reservation", "idleEnd")
    stack.engine("up", "--yes")
    stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
