"""The first process of the node: lays out its namespaces, starts the cluster, and waits.

Runs with the programs of the machine outside and with the standard library alone. Its task comes as
one line of JSON on its standard input; it says on a pipe when each step is done. When one of the
cluster's programs ends, this process says so and ends too, with everything inside.
"""

import ctypes
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

NEW_CGROUP = 0x02000000  # CLONE_NEWCGROUP
SHARES = str(32 * 1024)  # of the processors
DEADLINE_SECONDS = 120
POLL_SECONDS = 0.1
# kubelet sets these for the whole machine. Inside, they are files of its own.
KERNEL_SETTINGS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
SNAPSHOT = re.compile(r"[^\s,=:]*/snapshots/\d+/fs")

libc = ctypes.CDLL(None, use_errno=True)


def main(folder: Path, tell: int) -> None:
    """Say that the namespaces exist, start the given programs, and say when the API answers."""
    os.write(tell, b"1")
    told = json.loads(sys.stdin.readline())
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
    _groups(told["groups"])
    _network(told)
    _mounts(folder, told["cpus"])
    running = _start(folder, told["first"])
    _wait_until(lambda: _answers(told["ready"], folder / "ca.crt"), "the API server", running)
    os.write(tell, b"2")
    running |= _start(folder, told["then"])
    _wait_until(lambda: _containerd_answers(folder), "containerd", running)
    _images(folder, told["images"])
    os.write(tell, b"3")
    os.close(tell)
    while True:
        pid, status = os.wait()
        if pid in running:
            _end(f"{running[pid]} ended with {os.waitstatus_to_exitcode(status)}")


def _groups(groups: list[list[str]]) -> None:
    """Join the node's control groups, and see them as the root of each hierarchy."""
    for _kind, _mount, group in groups:
        Path(group, "cgroup.procs").write_text("0")
    if libc.unshare(NEW_CGROUP) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    run("umount", "--recursive", "/sys/fs/cgroup")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup")
    for kind, place, _group in groups:
        Path(place).mkdir()
        option = f"none,{kind}" if kind.startswith("name=") else kind
        run("mount", "-t", "cgroup", "-o", option, "cgroup", place)
        if "cpu" in kind.split(","):
            # As much for these programs as kubelet gives to all pods, or pods would starve them.
            system = Path(place, "system")
            system.mkdir()
            (system / "cpu.shares").write_text(SHARES)
            (system / "cgroup.procs").write_text("0")


def _network(told: dict[str, Any]) -> None:
    for command in (
        "link set lo up",
        f"address add {told['address']}/24 dev {told['interface']}",
        f"link set {told['interface']} up",
        # For the node's own calls of services, whose addresses are translated on the way out.
        f"route add {told['services']} dev {told['interface']}",
    ):
        run("ip", *command.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _mounts(folder: Path, cpus: int) -> None:
    """Redirect the programs' writes outside of the node's folder into it, or into memory."""
    for path in ("/run", "/var/log"):
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", path)
    Path("/run/lock").mkdir()
    for name in ("upper", "work", "etcd", "log"):
        (folder / name).mkdir()
    layers = f"lowerdir=/var/lib,upperdir={folder}/upper,workdir={folder}/work"
    run("mount", "-t", "overlay", "-o", layers, "overlay", "/var/lib")
    run("mount", "-t", "tmpfs", "tmpfs", str(folder / "etcd"))
    run("mount", "--bind", str(folder / "resolv.conf"), "/etc/resolv.conf")
    for name, value in KERNEL_SETTINGS.items():
        own = folder / name.replace("/", "-")
        own.write_text(value)
        run("mount", "--bind", str(own), f"/proc/sys/{name}")
    _processors(folder / "processors", cpus)


def _processors(folder: Path, count: int) -> None:
    """Let kubelet count more processors than exist: pods' requests are only a promise.

    It counts folders and pins pods to the numbers in their names, which have to be real ones: cpu01
    is processor 1 again.
    """
    node = folder / "node0"
    real = sorted(os.sched_getaffinity(0))
    for index in range(count):
        zeros, number = "0" * (index // len(real)), real[index % len(real)]
        topology = node / f"cpu{zeros}{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "core_id").write_text(str(index))
        (topology / "physical_package_id").write_text("0")
    (node / "meminfo").write_bytes(Path("/sys/devices/system/node/node0/meminfo").read_bytes())
    run("mount", "--bind", str(folder), "/sys/devices/system/node")


def _start(folder: Path, programs: dict[str, list[str]]) -> dict[int, str]:
    """Start programs, each with a log of its own; their names by their numbers."""
    running = {}
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for name, command in programs.items():
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(folder / "log" / name), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        running[os.posix_spawnp(command[0], command, os.environ, file_actions=actions)] = name
    return running


def _answers(url: str, authority: Path) -> bool:
    context = ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return answer.status == 200
    except OSError:
        return False


def _images(folder: Path, images: list[dict[str, Any]]) -> None:
    """Make known images whose layers are folders of the Docker Engine."""
    known = set()
    for layer in (layer for image in images for layer in image["layers"]):
        if layer["chain"] in known:
            continue
        known.add(layer["chain"])
        key = f"making-{len(known)}"
        prepare = ["snapshots", "prepare", key, *filter(None, [layer["below"]])]
        run_ctr(folder, *prepare)
        mounts = run_ctr(folder, "snapshots", "mounts", "/mnt", key)
        # The last one named is the layer's own: those before are the layers below.
        own = [path for path in SNAPSHOT.findall(mounts) if "upperdir=" + path in mounts]
        place = (own or SNAPSHOT.findall(mounts))[0]
        run_ctr(folder, "snapshots", "commit", layer["chain"], key)
        run("mount", "--bind", layer["folder"], place)
        run("mount", "-o", "remount,bind,ro", place)
    for image in images:
        run_ctr(folder, "images", "import", image["archive"])


def run_ctr(folder: Path, *arguments: str) -> str:
    """Run containerd's client; its output."""
    return run("ctr", "--address", f"{folder}/containerd.sock", "--namespace", "k8s.io", *arguments)


def _containerd_answers(folder: Path) -> bool:
    command = ["ctr", "--address", f"{folder}/containerd.sock", "version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _wait_until(holds: Any, what: str, running: dict[int, str]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        for pid, name in running.items():
            if os.waitpid(pid, os.WNOHANG)[0]:
                _end(f"{name} ended while {what} was waited for")
        if time.monotonic() > deadline:
            _end(f"{what} does not answer within {DEADLINE_SECONDS} s")
        time.sleep(POLL_SECONDS)


def run(*command: str) -> str:
    """Run a program, or end with its error; its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        _end(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _end(reason: str) -> None:
    sys.stderr.write(f"{reason}\n")
    sys.exit(1)


main(Path(sys.argv[1]), int(sys.argv[2]))
