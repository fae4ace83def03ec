"""This machine: its resources, and the paths of the programs that services name."""

# ruff: noqa: PLC0415 - `make monitoring` needs this before packages are installed

import ipaddress
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from infra.operate.checkout import ROOT
from trainyard.access import user

MIB = 1024 * 1024  # bytes
GO_SECONDS = 10  # for `go version`
ELSEWHERE = "203.0.113.1"  # an unused address, on the internet's side of all routes
OWNER_LIMIT = 128  # characters, as a cloud's tags have
OWNER_PART_LIMIT = 16  # characters of it in names, which are bounded more tightly
RUNTIME_BASE = Path("/var/tmp")  # noqa: S108 (runtimes/folders checks a folder's owner)
RUNTIME_NAME = re.compile("trainyard-[0-9a-f]{6}")


@dataclass(frozen=True, kw_only=True)
class LocalHost:
    """This machine.

    Attributes:
        cpus: logical CPUs that this process may use.
    """

    cpus: int
    memory_mib: int

    @classmethod
    def detect(cls) -> "LocalHost":
        import psutil

        return cls(
            cpus=len(os.sched_getaffinity(0)),
            memory_mib=psutil.virtual_memory().total // MIB,
        )


def environment_program(name: str) -> str:
    """Return the path of a program of this Python environment; PATH may have another's.

    Links are followed: the environment is the same one by whichever path an engine enters it.
    """
    return str(Path(sys.prefix).resolve() / "bin" / name)


def existing_file(path: str, setting: str) -> str:
    """Return the path of an existing file: the Engine would make a folder for a missing one.

    Raises:
        pulumi.RunError: the file is missing.
    """
    if not Path(path).is_file():
        import pulumi

        raise pulumi.RunError(
            f"{setting} = {path!r}: no such file on this machine; put it there, or name another one"
        )
    return path


def go_version() -> tuple[int, int] | None:
    """Return major and minor version of the Go on PATH, None without one."""
    try:
        done = subprocess.run(
            ["go", "version"], capture_output=True, text=True, timeout=GO_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else None


def cache_folder() -> Path:
    """Return the folder of files that any stack can make again."""
    return user.folder("XDG_CACHE_HOME", ".cache") / "trainyard"


def data_folder(stack: str) -> Path:
    """Return the default folder of data that outlives a stack."""
    return user.folder("XDG_DATA_HOME", ".local/share") / "trainyard" / stack


def choice_file(stack: str) -> Path:
    """Return the file, next to a stack's data, that records its automatic choice of runtime."""
    return data_folder(stack).with_name(f"{stack}.runtime")


def runtime_folder(stack: str) -> Path:
    """Return the default runtime folder of a stack.

    It is in /var/tmp: /tmp and XDG_RUNTIME_DIR are often file systems in memory, where Ray would
    spill objects, and are emptied early. Its name is short: Ray's sockets leave 25 bytes. The name
    depends on the checkout's folder, so two checkouts have two folders.
    """
    return _short_folder(f"{os.getuid()}\0{ROOT}\0{stack}")


def is_runtime_folder(folder: Path) -> bool:
    """Return whether a folder is the default runtime folder of some stack."""
    return folder.parent == RUNTIME_BASE and bool(RUNTIME_NAME.fullmatch(folder.name))


def host_folder(stack: str) -> Path:
    """Return the default runtime folder of a stack on other machines.

    It depends on nothing of this machine, or the stack would move when another one brings it up. It
    is not below a home folder, which machines may share.
    """
    return _short_folder(f"host\0{stack}")


def _short_folder(key: str) -> Path:
    # Two stacks of one name are told apart by their mark, so a short digest will do.
    return RUNTIME_BASE / f"trainyard-{sha256(key.encode()).hexdigest()[:6]}"


def owner(setting: str = "") -> str:
    """Return a stack's owner, fit for a tag: the setting, else user and machine."""
    text = setting or f"{user.name()}@{socket.gethostname()}"
    return re.sub(r"[^A-Za-z0-9@._-]+", "-", text)[:OWNER_LIMIT]


def owner_part(setting: str) -> str:
    """Return a stack's owner, fit for names of containers, instances and objects; "" if not set."""
    return re.sub(r"[^a-z0-9]+", "-", setting.lower())[:OWNER_PART_LIMIT].strip("-")


def public_address() -> str:
    """Return this machine's IPv4 address on the internet, "" behind a translating router.

    Nothing is sent: it is the source address that packets to the internet would have.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ELSEWHERE, 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return ""
    return address if ipaddress.IPv4Address(address).is_global else ""
