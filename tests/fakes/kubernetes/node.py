"""One node of Kubernetes, from nothing to Ready in about ten seconds."""

import atexit
import contextlib
import fcntl
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import psutil

from tests import go_tools
from tests.fakes.kubernetes import credentials, images, programs
from tests.fakes.kubernetes.errors import NoKubernetesError
from tests.fakes.machines import network
from tests.fakes.machines.machines import NAMESPACES, in_new_namespaces

HERE = Path(__file__).parent
# Not below /tmp, which is memory on many systems: containers write here.
FOLDERS = Path("/var/tmp")
LOCK = Path("/run/lock/trainyard-kubernetes")
COUNT = 256
GROUPS = Path("/sys/fs/cgroup")
NEEDED = {  # a program, and Debian's package that has it
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "dnsmasq": "dnsmasq-base",
}
CNI = Path("/usr/lib/cni")
CNI_PACKAGE = "containernetworking-plugins"
SHARES = str(16 * 1024)  # of the processors: as 16 processes
START_SECONDS = 120
POLL_SECONDS = 0.1
LAST_CHARACTERS = 3000


class Node:
    """A cluster of one node. It ends with this process, however it ends.

    Several may run at the same time. The leftovers of a killed process (a folder, empty control
    groups) are removed by the next one.

    Attributes:
        kubeconfig: file (0600) with the contexts admin, which may do all, and nobody, which may
            do nothing. Its address answers on this machine only.
        address: of the node, for this machine.
        programs: folder with a kubectl of the cluster's version, for a PATH.

    Raises:
        NoKubernetesError: this machine cannot have one, and why.
        RuntimeError: it did not start; with the end of its log.
    """

    def __init__(self) -> None:
        _check_this_machine()
        try:
            program = go_tools.obtain("hk")
        except go_tools.NoGoError as error:
            raise NoKubernetesError(str(error)) from None
        self._process: subprocess.Popen[str] | None = None
        self._init = 0
        with network.alone(LOCK):
            _sweep()
            self.number, self.folder, self._owner = _claim()
        self.address = f"10.79.{self.number}.2"
        self.kubeconfig = self.folder / "kubeconfig"
        self.name = "node1"
        self.programs = self.folder / "bin"
        atexit.register(self.close)
        try:
            self._start(program)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        """Run kubectl as the admin, with a text as its standard input; its output.

        Raises:
            AssertionError: it failed.
        """
        done = subprocess.run(
            [self.programs / "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def close(self) -> None:
        """End the node, with everything in it; a second time does nothing."""
        atexit.unregister(self.close)
        if self._owner.closed:
            return
        if self._process:
            if self._init:
                with contextlib.suppress(ProcessLookupError):
                    # All others inside end before this one is gone.
                    os.kill(self._init, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
        _remove(self.number)
        self._owner.close()

    def _start(self, program: Path) -> None:
        credentials.make(self.folder, self.address)
        self.programs.mkdir()
        (self.programs / "kubectl").symlink_to(program)
        (self.folder / "resolv.conf").write_text(f"nameserver {self.address}\n")
        groups = _make_groups(self.number)
        interface = f"{_name(self.number)}n"
        told = {
            "address": self.address,
            "interface": interface,
            "services": programs.SERVICES,
            "cpus": programs.CPUS,
            "groups": groups,
            "ready": f"https://{self.address}:{credentials.PORT}/readyz",
            "images": images.of_engine(self.folder),
            **programs.write(self.folder, program, self.address, self.name),
        }
        command = ("setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES)
        command += ("--mount-proc", "--propagation=private")
        self._process, answer = in_new_namespaces(HERE / "enter.py", self.folder, command)
        with answer:
            self._expect(answer, b"1")
            self._init = psutil.Process(self._process.pid).children()[0].pid
            _connect(self.number, interface, self._process.pid, self._init)
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
            self._expect(answer, b"2")
            self.kubectl("apply", "--server-side", f"--filename={HERE / 'storage.yaml'}")
            self._expect(answer, b"3")
        self._until_ready()

    def _expect(self, answer: IO[bytes], step: bytes) -> None:
        """Wait for a step, or raise with the node's output."""
        if answer.read(1) != step:
            raise RuntimeError(f"Kubernetes did not start:\n{self._said()}")

    def _until_ready(self) -> None:
        """Wait until pods can be made, and would be started."""
        deadline = time.monotonic() + START_SECONDS
        node = (
            "get",
            "node",
            self.name,
            "--output=jsonpath={.status.conditions[?(@.type=='Ready')]}",
        )
        account = ("get", "serviceaccount", "default", "--output=name")
        while not (
            '"status":"True"' in self.kubectl(*node, check=False)
            and self.kubectl(*account, check=False)
        ):
            if time.monotonic() > deadline or (self._process and self._process.poll() is not None):
                raise RuntimeError(f"Kubernetes is not Ready:\n{self._said()}")
            time.sleep(POLL_SECONDS)

    def _said(self) -> str:
        """Return the end of its first process's output, and of each program's log."""
        logs = [self.folder / "console", *sorted((self.folder / "log").glob("*"))]
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-LAST_CHARACTERS:]}" for path in logs
        )


def _check_this_machine() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NoKubernetesError("a node of Kubernetes needs Linux and root, for its namespaces")
    packages = sorted({package for name, package in NEEDED.items() if not shutil.which(name)})
    if not (CNI / "ptp").exists():
        packages.append(CNI_PACKAGE)
    if packages:
        raise NoKubernetesError(f"Kubernetes lacks programs: apt-get install {' '.join(packages)}")
    if not _hierarchies():
        raise NoKubernetesError(
            "no control groups of version 1 in /sys/fs/cgroup; the node was never tried on 2"
        )


def _hierarchies() -> list[tuple[str, str, Path]]:
    """Return kind, place and our own group of each hierarchy of control groups here."""
    return hierarchies(*(Path("/proc/self", name).read_text() for name in ("cgroup", "mountinfo")))


def hierarchies(groups: str, mounts: str) -> list[tuple[str, str, Path]]:
    """Return kind, place and our own group of each hierarchy of control groups of version 1.

    One may be mounted at several places, and a part of it anywhere, as programs that run containers
    do: the place below GROUPS counts at which our group is seen.

    Args:
        groups: the text of /proc/self/cgroup.
        mounts: the text of /proc/self/mountinfo.
    """
    own = {}
    for line in groups.splitlines():
        _, kind, path = line.split(":", 2)
        own[kind] = path
    found = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, root, place, _ = before.split(" ", 5)
        if kind != "cgroup" or Path(place).parent != GROUPS:
            continue
        for name, path in own.items():
            controllers = set(name.split(",")) <= set(options.split(","))
            if name and controllers and Path(path).is_relative_to(root):
                found[name] = (name, place, Path(place) / Path(path).relative_to(root))
    return [*found.values()]


def _make_groups(number: int) -> list[tuple[str, str, str]]:
    """Make the node's control groups, below ours: its memory counts as ours."""
    made = []
    for kind, place, group in _hierarchies():
        path = group / _name(number)
        path.mkdir(exist_ok=True)
        if kind == "cpuset":  # an empty one takes no process
            for name in ("cpuset.cpus", "cpuset.mems"):
                (path / name).write_text((group / name).read_text())
        if "cpu" in kind.split(","):
            # Otherwise a whole cluster gets as much as one other process of this machine.
            (path / "cpu.shares").write_text(SHARES)
        made.append((kind, place, str(path)))
    return made


def _connect(number: int, interface: str, process: int, init: int) -> None:
    """Lay a cable between this machine and the node; nothing is translated or forwarded on it."""
    link = _name(number)
    network.ip("link", "add", link, *f"type veth peer name {interface} netns {init}".split())
    network.ip("address", "add", f"10.79.{number}.1/24", "dev", link)
    network.ip("link", "set", link, "up")


def _name(number: int) -> str:
    """Return the name of a node's folder, cable and control groups."""
    return f"tymk{number}"


def _claim() -> tuple[int, Path, IO[str]]:
    """Return a free number, its folder, and a file that holds the number while it is open."""
    taken = network.taken()
    for number in range(COUNT):
        wanted = ipaddress.ip_network(f"10.79.{number}.0/24")
        folder = FOLDERS / _name(number)
        if folder.exists() or any(wanted.overlaps(other) for other in taken):
            continue
        folder.mkdir(mode=0o700)
        owner = (folder / "owner").open("w")
        fcntl.flock(owner, fcntl.LOCK_EX)
        return number, folder, owner
    raise NoKubernetesError("no free network in 10.79.0.0/16: end other test runs")


def _sweep() -> None:
    """Remove the leftovers of killed processes."""
    for folder in FOLDERS.glob(_name(0)[:-1] + "*"):
        try:
            owner = (folder / "owner").open("w")
        except OSError:
            continue
        with owner:
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove(int(folder.name.removeprefix(_name(0)[:-1])))


def _remove(number: int) -> None:
    """Remove a node's leftovers once its processes have ended."""
    with contextlib.suppress(OSError):  # it goes with the node too, a moment later
        network.ip("link", "delete", _name(number))
    for _, _, group in _hierarchies():
        for path, _, _ in os.walk(group / _name(number), topdown=False):
            _remove_group(Path(path))
    subprocess.run(["rm", "-rf", FOLDERS / _name(number)], check=True)


def _remove_group(group: Path) -> None:
    """Remove a control group, which the kernel keeps until the last of its processes is gone."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return
