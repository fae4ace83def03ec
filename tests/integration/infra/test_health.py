"""A head that keeps ending and a supervisord that is gone: told everywhere, mended by up."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests import quick

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
AGENT = "ray::DashboardAgent"


def _train(stack: Any, *arguments: str) -> tuple[int, str]:
    """Run `train` as a user in the project's folder: its exit code, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "trainyard.client", *arguments, "-s", "test"],
        cwd=stack.project,
        env=stack.environment | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def _serve(stack: Any, script: Path) -> str:
    """Serve a run of a script that answers with what it is sent; return the service's address."""
    script.write_text("def predict(inputs):\n    return [inputs]\n")
    for command in (
        ("submit", str(script), "--name", "echo"),
        ("serve", "echo", "--cpus-per-replica", "0.1"),
    ):
        code, said = _train(stack, *command)
        assert code == 0, said
    return f"{stack.outputs()['serveUrl']}/echo/predict"


def _taken(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("", port))
    except OSError:
        return None


def _agents(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [each for each in processes if AGENT in each.cmdline()]


def test_a_dead_head_and_a_dead_supervisord_are_told_everywhere(  # F63, A46
    declare_stack, started_below, wait_for, tmp_path
):
    stack = declare_stack(startTimeoutSeconds=120, page=True)
    stack.environment.update(quick.AS_THE_CLI)  # `train` starts engines too
    stack.engine("up", "--yes")
    port = stack.settings["rayClientPort"]
    service = _serve(stack, tmp_path / "echo.py")
    page = stack.outputs()
    viewer = ("viewer", page["pagePassword"])
    codes = [requests.get(page["pageUrl"], auth=a, timeout=60).status_code for a in (None, viewer)]
    assert codes == [401, 200]  # the read-only page is one of the services

    for process in started_below(stack.folder):
        if "ray.util.client.server" in process.cmdline():
            process.kill()
    with wait_for(lambda: _taken(port), 60):
        held = f"port {port} (rayClientPort) is held by"
        wait_for(lambda: "ray-head ended" in stack.drift().stdout, 120)
        report = stack.drift()
        assert report.returncode in (1, 2), report.stdout
        assert held in report.stdout
        for command, code in (("info", 1), ("refresh", 2)):
            got, said = _train(stack, command)
            assert got == code, said
            assert held in said
        got, said = _train(stack, "up")
        assert got
        assert held in said
        # Between two ends the head may answer.
        wait_for(lambda: held in _train(stack, "list")[1], 120)
    # An agent that hangs and has lost its node holds its port: only its variables tell whose it is.
    agent = wait_for(lambda: _agents(started_below(stack.folder)), 120)[0]
    agent.suspend()
    agent.parent().kill()
    os.kill(int((stack.folder / "supervisord.pid").read_text()), signal.SIGKILL)
    got, said = _train(stack, "info")
    assert (got, f"supervisord of {stack.folder} does not answer" in said) == (1, True), said
    got, said = _train(stack, "up")  # the port is free again, and nothing else has changed
    assert got == 0, said
    assert "service echo is deployed again" in said
    bearer = {"Authorization": f"Bearer {stack.outputs()['serveToken']}"}

    def answer() -> requests.Response:
        return requests.post(service, json="again", headers=bearer, timeout=10)

    assert wait_for(lambda: answer().ok and answer().json(), 120) == ["again"]
    assert _train(stack, "info")[0] == 0
    stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    stack.engine("destroy", "--yes")
