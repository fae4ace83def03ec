"""The node is what it claims to be, and leaves nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.fakes.kubernetes import Node, NoKubernetesError, programs
from tests.fakes.kubernetes.node import FOLDERS, LINKS, _alone, _hierarchies, _sweep, hierarchies

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
    return [path for path in (FOLDERS / name, LINKS / name, *groups) if path.exists()]


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
    with _alone():
        _sweep()
    assert _left(number) == []
    assert kubernetes.kubectl("get", "nodes")  # other nodes stay


def test_a_start_that_fails_says_why_and_leaves_nothing(kubernetes, monkeypatch):
    write = programs.write

    def without_etcd(*arguments):
        written = write(*arguments)
        written["first"]["etcd"] = ["false"]
        return written

    monkeypatch.setattr(programs, "write", without_etcd)
    before = {path.name for path in FOLDERS.glob("tymk*")}
    with pytest.raises(RuntimeError, match="etcd ended"):
        Node()
    assert {path.name for path in FOLDERS.glob("tymk*")} == before


def test_what_is_missing_is_named_with_its_package(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoKubernetesError, match=r"apt-get install .*etcd-server"):
        Node()


def test_control_groups_that_are_mounted_twice_are_one():
    groups = "4:memory:/jobs\n3:cpu,cpuacct:/jobs\n2:name=systemd:/\n1:name=other:/\n0::/jobs\n"
    mounts = "\n".join(
        f"{number} 1 0:1 {root} {place} rw - {kind} {kind} rw,{options}"
        for number, (kind, options, root, place) in enumerate(
            (
                ("cgroup", "memory", "/", "/sys/fs/cgroup/memory"),
                ("cgroup", "memory", "/", "/run/machines/cgroup/memory"),
                ("cgroup", "memory", "/elsewhere", "/sys/fs/cgroup/part"),
                ("cgroup", "cpu,cpuacct", "/", "/sys/fs/cgroup/cpu,cpuacct"),
                ("cgroup", "xattr,name=systemd", "/", "/sys/fs/cgroup/systemd"),
                ("cgroup2", "nsdelegate", "/", "/sys/fs/cgroup/unified"),
            )
        )
    )
    assert hierarchies(groups, mounts) == [
        ("memory", "/sys/fs/cgroup/memory", Path("/sys/fs/cgroup/memory/jobs")),
        ("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct", Path("/sys/fs/cgroup/cpu,cpuacct/jobs")),
        ("name=systemd", "/sys/fs/cgroup/systemd", Path("/sys/fs/cgroup/systemd")),
    ]
