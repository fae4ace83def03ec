"""Machines that are made, cut off and destroyed, as a cloud does with its own."""

import atexit
import contextlib
import fcntl
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from tests.fakes.machines import network, root, uv_cache
from tests.fakes.machines.network import Network
from tests.fakes.machines.root import NoMachinesError

ENTER = Path(__file__).parent / "enter.py"
# Not below /tmp, which is memory on many systems: a machine may hold a whole Python environment.
FOLDERS = Path("/var/tmp")
LOCK = Path("/run/lock/trainyard-machines")
HOSTS = range(2, 255)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc")
PROGRAMS = ("unshare", "nsenter", "pivot_root", "ip", "iptables")
SEED = "/var/lib/cloud/seed/nocloud"
BOOT_SECONDS = 60
POLL_SECONDS = 0.05
CONTROL_GROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class _Machine:
    process: subprocess.Popen[str]
    host: int
    init: int  # its first process, by its number outside
    folder: Path
    told: dict[str, Any]  # its task, for a restart


class Machines:
    """Machines on a network of their own. They end with this process, however it ends.

    The leftovers of a killed process (a bridge, rules of iptables, a folder) are removed by the
    next one that makes machines. All methods may be called by several threads at once.

    Raises:
        NoMachinesError: this machine cannot have any, and why.
    """

    def __init__(self) -> None:
        _check_this_machine()
        self._machines: dict[str, _Machine] = {}
        self._free = deque(HOSTS)  # one that was freed comes last: neighbours still know it
        self._lock = threading.Lock()
        self._held = contextlib.ExitStack()
        self._closed = False
        self._roots: dict[tuple[str, ...], Path] = {}
        with network.alone(LOCK):
            _sweep()
            self.network, self.folder, owner = _claim()
        self._held.enter_context(owner)
        atexit.register(self.close)

    def __enter__(self) -> "Machines":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def boot(
        self,
        instance_id: str,
        name: str = "",
        hostname: str = "",
        user_data: str = "",
        ssh_public_key: str = "",
        *,
        docker: bool = False,
        systemd: bool = False,
    ) -> tuple[str, str]:
        """Start a machine. Returns once its first process runs; cloud-init and sshd come after.

        Args:
            instance_id: its name in the other methods.
            name: its owner's name for it.
            hostname: its own name; by default made of its private address.
            user_data: for cloud-init.
            ssh_public_key: the key with which the user `ubuntu` may log in.
            docker: whether a Docker Engine runs in it.
            systemd: whether systemd is its first process; it ends by `destroy` only.

        Returns:
            Its public and its private address.

        Raises:
            NoMachinesError: its root file system could not be made.
            RuntimeError: it did not start.
        """
        if not NAME.fullmatch(instance_id):
            raise ValueError(
                f"instance id {instance_id!r}: up to 64 letters, digits, `.`, `_`, `-`"
            )
        packages: tuple[str, ...] = root.WITH_DOCKER if docker else root.PACKAGES
        packages = root.WITH_SYSTEMD if systemd else packages
        with self._lock:
            if packages not in self._roots:
                self._roots[packages] = self._held.enter_context(root.held(packages))
            host = self._free.popleft()
        public, private = f"{self.network.public}.{host}", f"{self.network.private}.{host}"
        about = {
            "instance-id": instance_id,
            "instance-name": name,
            "local-hostname": hostname or f"ip-{private.replace('.', '-')}",
            "public-keys": [ssh_public_key] if ssh_public_key else [],
        }
        files = {
            "/etc/resolv.conf": _resolv_conf(),
            f"{SEED}/meta-data": json.dumps(about),
            f"{SEED}/user-data": user_data or "#cloud-config\n{}\n",
        }
        if docker:
            group = {"cgroup-parent": f"/{self.network.link(host)}"}
            files["/etc/docker/daemon.json"] = json.dumps(group)
        told = {
            "root": str(self._roots[packages]),
            "address": f"{private}/24",
            "gateway": self.network.gateway,
            "docker": docker,
            "control_group": str(_unified() / self.network.link(host)) if systemd else "",
            "uv_cache": str(uv_cache.folder()),
            "files": files,
        }
        (self.folder / instance_id).mkdir()
        self._start(instance_id, host, told)
        return public, private

    def restart(self, instance_id: str) -> None:
        """Pull out the plug and put it in again; its disk stays. Returns as `boot` does."""
        machine = self._machines[instance_id]
        self._end(machine)
        self._start(instance_id, machine.host, machine.told)

    def _start(self, instance_id: str, host: int, told: dict[str, Any]) -> None:
        folder = self.folder / instance_id
        process, answer = in_new_namespaces(ENTER, folder)
        with answer:
            _expect(answer, b"1", folder)
            init = psutil.Process(process.pid).children()[0].pid
            with self._lock:
                self._machines[instance_id] = _Machine(process, host, init, folder, told)
            self.network.connect(host, process.pid)
            assert process.stdin is not None
            process.stdin.write(json.dumps(told) + "\n")
            process.stdin.flush()  # and left open: a machine ends when it closes
            _expect(answer, b"2", folder)

    def wait(self, instance_id: str, seconds: float = BOOT_SECONDS) -> None:
        """Wait until cloud-init has finished.

        Raises:
            TimeoutError: it has not, or the machine is dead; with the end of its console.
        """
        machine = self._machines[instance_id]
        deadline = time.monotonic() + seconds
        while machine.process.poll() is None and time.monotonic() < deadline:
            if self.path(instance_id, "/run/cloud-init/result.json").exists():
                return
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"{instance_id} has not booted:\n{self.console(instance_id)[-3000:]}")

    def exec(
        self, instance_id: str, command: str, *, user: str = "root", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command as a user who logs in, without a network."""
        done = subprocess.run(
            [
                *("nsenter", f"--target={self._machines[instance_id].init}", "--mount"),
                *("--pid", "--net", "--uts", "--ipc", "--", "su", "--login", user, "-c", command),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def path(self, instance_id: str, path: str) -> Path:
        """Return where a file of the machine is for this process; links in it lead elsewhere."""
        return Path(f"/proc/{self._machines[instance_id].init}/root") / path.lstrip("/")

    def console(self, instance_id: str) -> str:
        """Return the output of its first processes: cloud-init, and its commands."""
        return (self._machines[instance_id].folder / "console").read_text(errors="replace")

    def cut(self, instance_id: str) -> None:
        """Pull out its network cable."""
        self._cable(instance_id, "down")

    def heal(self, instance_id: str) -> None:
        """Plug it in again."""
        self._cable(instance_id, "up")

    def _cable(self, instance_id: str, state: str) -> None:
        link = self.network.link(self._machines[instance_id].host)
        network.ip("link", "set", link, state)

    def destroy(self, instance_id: str) -> None:
        """End a machine, with everything in it; a missing one is not an error."""
        with self._lock:
            machine = self._machines.pop(instance_id, None)
        if machine is None:
            return
        self._end(machine)
        _remove_control_groups(self.network.link(machine.host))
        _remove(machine.folder)
        with self._lock:
            self._free.append(machine.host)

    def _end(self, machine: _Machine) -> None:
        with contextlib.suppress(ProcessLookupError):
            # All others in the machine end before this one is gone.
            os.kill(machine.init, signal.SIGKILL)
        assert machine.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            machine.process.stdin.close()
        machine.process.wait()
        with contextlib.suppress(OSError):  # it goes with the machine too, a moment later
            network.ip("link", "delete", self.network.link(machine.host))

    def close(self) -> None:
        """Destroy all machines, and their network; a second time does nothing."""
        atexit.unregister(self.close)
        if self._closed:
            return
        self._closed = True  # its network may be another's by the next time
        for instance_id in list(self._machines):
            self.destroy(instance_id)
        self.network.remove()
        _remove(self.folder)
        self._held.close()


def _check_this_machine() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NoMachinesError(
            "machines need Linux and root, for namespaces and a network of theirs"
        )
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        raise NoMachinesError(f"not on PATH: {', '.join(missing)}; install iproute2 and iptables")
    done = subprocess.run(
        ["unshare", *NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoMachinesError(f"this machine permits no namespaces: {done.stderr.strip()}")


def _unified() -> Path:
    """Return the tree of control groups of version 2."""
    return both if (both := CONTROL_GROUPS / "unified").is_dir() else CONTROL_GROUPS


def in_new_namespaces(
    enter: Path, folder: Path, command: Sequence[str] = ("unshare", *NAMESPACES)
) -> tuple[subprocess.Popen[str], IO[bytes]]:
    """Start the program that becomes a machine, and return it with its reports of steps."""
    ready, tell = os.pipe()
    answer = os.fdopen(ready, "rb", buffering=0)
    try:
        with (folder / "console").open("w") as console:
            process = subprocess.Popen(
                [*command, sys.executable, "-SI", enter, folder, str(tell)],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=(tell,),
                start_new_session=True,  # a Ctrl-C is for the test, which destroys its machines
            )
    finally:
        os.close(tell)
    return process, answer


def _expect(answer: IO[bytes], step: bytes, folder: Path) -> None:
    """Wait for a step of a machine, or raise with its output."""
    if answer.read(1) != step:
        raise RuntimeError(f"{folder.name} did not start:\n{(folder / 'console').read_text()}")


def _resolv_conf() -> str:
    """Return this machine's name servers; behind a local one, the servers that it asks."""
    behind = Path("/run/systemd/resolve/resolv.conf")
    return (behind if behind.exists() else Path("/etc/resolv.conf")).read_text()


def _claim() -> tuple[Network, Path, IO[str]]:
    """Return a free network, its folder, and a file that holds them while it is open."""
    taken = network.taken()
    for number in range(network.COUNT):
        found = Network(number)
        wanted = [ipaddress.ip_network(f"{part}.0/24") for part in (found.public, found.private)]
        if any(one.overlaps(other) for one in wanted for other in taken):
            continue
        folder = FOLDERS / found.bridge
        folder.mkdir(mode=0o700)
        owner = (folder / "owner").open("w")
        fcntl.flock(owner, fcntl.LOCK_EX)
        found.make()
        return found, folder, owner
    raise NoMachinesError("no free network in 10.77.0.0/16 and 10.78.0.0/16: end other test runs")


def _sweep() -> None:
    """Remove the leftovers of killed processes."""
    for number in range(network.COUNT):
        left = Network(number)
        folder = FOLDERS / left.bridge
        if not (left.exists() or folder.exists()):
            continue
        folder.mkdir(exist_ok=True)
        with (folder / "owner").open("w") as owner:
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _end_those_of(folder)
            left.remove()
            _remove_control_groups(f"{left.link_prefix}*")
            _remove(folder)


def _end_those_of(folder: Path) -> None:
    """End the machines of a folder that outlived their maker."""
    processes = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(ENTER.name) in " ".join(process.info["cmdline"] or [])
        and any(Path(word).parent == folder for word in process.info["cmdline"])
    ]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()  # and with it, by --kill-child, the machine's first process
    psutil.wait_procs(processes, timeout=BOOT_SECONDS)


def _remove(folder: Path) -> None:
    """Remove a folder of perhaps 100,000 files, quicker than by Python."""
    subprocess.run(["rm", "-rf", folder], check=True)


def _remove_control_groups(pattern: str) -> None:
    """Remove the groups of a machine's containers, which the kernel keeps when they are empty."""
    for group in (*CONTROL_GROUPS.glob(pattern), *CONTROL_GROUPS.glob(f"*/{pattern}")):
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
