"""The first process of a machine: lays out its file system and network, and becomes its init.

Runs in new namespaces, with the programs of the machine outside, and with the standard library
alone, because it has to start fast. Its task comes as one line of JSON on its standard input.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
    "ptmx": "pts/ptmx",
}
# Parts that all machines share with the one outside: a machine's root does not touch them.
SHARED = ("sys_module", "sys_rawio", "sys_time", "syslog", "mac_admin", "mac_override")
MNT_DETACH = 2
CLONE_NEWCGROUP = 0x02000000

libc = ctypes.CDLL(None, use_errno=True)


def main(folder: Path, tell: int) -> None:
    """Say that the namespaces exist, carry out the task, and say so before init begins.

    The task is one line of JSON on standard input.
    """
    os.write(tell, b"1")
    told = json.loads(sys.stdin.readline())
    root = folder / "root"
    for path in (root, folder / "disk", folder / "uv", folder / "docker"):
        path.mkdir(exist_ok=True)  # after a restart they are there
    _network(told["address"], told["gateway"])
    _overlay(Path(told["root"]), folder / "disk", root)
    _kernel_file_systems(root, docker=told["docker"])
    _bind(Path(told["uv_cache"]), root / "var/cache/uv")
    _mount("-o", "remount,bind,ro", root / "var/cache/uv")
    # Folders that are not an overlay, for programs that lay overlays over them.
    _bind(folder / "uv", root / "run/uv")
    if told["docker"]:
        _bind(folder / "docker", root / "var/lib/docker")
    if group := told["control_group"]:
        _control_group(Path(group), root)
    for path, content in told["files"].items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "."], check=True)
    _check(libc.umount2(b".", MNT_DETACH))
    os.chdir("/")
    os.write(tell, b"2")
    os.close(tell)
    _become_init(systemd=bool(told["control_group"]))


def _network(address: str, gateway: str) -> None:
    for command in (
        "link set lo up",
        f"address add {address} dev eth0",
        "link set eth0 up",
        f"route add default via {gateway}",
    ):
        subprocess.run(["ip", *command.split()], check=True)


def _kernel_file_systems(root: Path, *, docker: bool) -> None:
    _mount("-t", "proc", "proc", root / "proc")
    _mount("-t", "sysfs", "-o", "ro", "sysfs", root / "sys")
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root / "run")
    dev = root / "dev"
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", dev)
    for name in DEVICES:
        (dev / name).touch()
        _mount("--bind", f"/dev/{name}", dev / name)
    for name, target in LINKS.items():
        (dev / name).symlink_to(target)
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=620,gid=5"),
        ("shm", "tmpfs", "mode=1777"),
    ):
        (dev / name).mkdir()
        _mount("-t", kind, "-o", options, kind, dev / name)
    if (root / "proc/sysrq-trigger").exists():  # a kernel may be without
        _mount("--bind", "/dev/null", root / "proc/sysrq-trigger")
    if docker:
        _mount("--rbind", "/sys/fs/cgroup", root / "sys/fs/cgroup")
    else:
        _mount("--bind", root / "proc/sys", root / "proc/sys")
        _mount("-o", "remount,bind,ro", root / "proc/sys")


def _control_group(group: Path, root: Path) -> None:
    """Give the machine a tree of control groups of its own, which systemd needs."""
    group.mkdir(exist_ok=True)
    (group / "cgroup.procs").write_text("0")
    _check(libc.unshare(CLONE_NEWCGROUP))
    _mount("-t", "cgroup2", "cgroup2", root / "sys/fs/cgroup")


def _overlay(lower: Path, changes: Path, target: Path) -> None:
    upper, work = changes / "upper", changes / "work"
    for path in (upper, work):
        path.mkdir(parents=True, exist_ok=True)
    upper.chmod(0o755)
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    _mount("-t", "overlay", "-o", layers, "overlay", target)


def _bind(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    _mount("--bind", source, target)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _become_init(*, systemd: bool) -> None:
    dropped = ",".join(f"-{name}" for name in SHARED)
    init = ["/lib/systemd/systemd"] if systemd else ["tini", "--", "/usr/local/sbin/boot"]
    variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    if systemd:
        variables["container"] = "machine"  # it leaves devices and clocks alone
    os.execve("/usr/bin/setpriv", ["setpriv", f"--bounding-set={dropped}", *init], variables)


main(Path(sys.argv[1]), int(sys.argv[2]))
