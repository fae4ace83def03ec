"""The node is what it claims to be, and leaves nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.fakes.kubernetes.node import FOLDERS, LOCK, _hierarchies, _sweep
from tests.fakes.machines import network

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[4]
# kubelet would change these for the whole machine.
SETTINGS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")


def _kernel():
    return {name: Path("/proc/sys", name).read_text() for name in SETTINGS}


def _left(number):
    """The existing parts of a node: its folder, its cable, its control groups."""
    name = f"tymk{number}"
    groups = [group / name for _, _, group in _hierarchies()]
    return [path for path in (FOLDERS / name, network.LINKS / name, *groups) if path.exists()]


def test_a_killed_test_run_leaves_no_process_and_the_next_one_removes_the_rest(kubernetes):
    kernel = _kernel()
    code = (
        "import signal; from tests.fakes.kubernetes import Node; n = Node();"
        "print(n.number, flush=True); signal.pause()"
    )
    maker = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        number = int(maker.stdout.readline())
        processes = psutil.Process(maker.pid).children(recursive=True)
        assert len(processes) > 8
        assert _kernel() == kernel
    finally:
        maker.send_signal(signal.SIGKILL)
        maker.wait()
    assert psutil.wait_procs(processes, timeout=30)[1] == []
    assert number != kubernetes.number  # two at a time
    with network.alone(LOCK):
        _sweep()
    assert _left(number) == []
    assert kubernetes.kubectl("get", "nodes")  # other nodes stay
