"""`ray start` ends with its raylet: here a program that calls the hook as Ray does."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import ray_watch

QUICK_SECONDS = 0.1  # instead of what a node waits
# Like `ray start --block`: it goes on when the raylet has ended in order, and collects its status.
START = """\
import importlib, os, subprocess, sys, time
module, name = os.environ["RAY_START_HOOK"].split(".")
getattr(importlib.import_module(module), name)(None, False)
raylet = subprocess.Popen([sys.argv[1], "60"])
left = [name for name in ("RAY_START_HOOK", "PYTHONPATH") if name in os.environ]
print(raylet.pid, left, flush=True)
while True:
    time.sleep(0.1)
    raylet.poll() if "collects" in sys.argv else None
"""


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    quick, waits = re.subn(r"(?m)^(\w+_SECONDS) = .*", rf"\1 = {QUICK_SECONDS}", ray_watch.text())
    assert waits == 2
    (tmp_path / ray_watch.FILE).write_text(quick)
    raylet = tmp_path / ray_watch.RAYLET
    shutil.copy(shutil.which("sleep") or "sleep", raylet)
    process = subprocess.Popen(
        [sys.executable, "-c", START, raylet, request.param],
        env=os.environ | ray_watch.environment(str(tmp_path / ray_watch.FILE)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    with contextlib.suppress(ProcessLookupError):  # it has ended, and all that it started
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("node", ["collects", "is busy"], indirect=True)
def test_a_node_ends_with_its_raylet(node: subprocess.Popen[str]) -> None:  # F25
    assert node.stdout is not None
    pid, left = node.stdout.readline().split(maxsplit=1)
    assert left.strip() == "[]"  # jobs have neither variable
    with pytest.raises(subprocess.TimeoutExpired):
        node.wait(2 * QUICK_SECONDS)
    os.kill(int(pid), signal.SIGTERM)
    assert node.wait(30) == 1
    assert node.stderr is not None
    assert f"The raylet (process {pid}) has ended" in node.stderr.read()
