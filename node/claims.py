"""Claims of this machine's ports: a file for each stack, for as long as the stack is there.

All users may write to the folder, and the files' random names cannot be taken in advance. A claim
of this user counts while its maker runs or the stack's folder or network exists; another user's
always counts.
"""

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from node import folders
from node.folders import FolderMark
from node.life import ServiceError
from node.ports import Ports, advice

FOLDER, PREFIX = Path("/var/tmp"), "trainyard-ports-"  # noqa: S108 (see above)
MODE = 0o1644  # sticky: systemd-tmpfiles keeps such a file at any age
LIMIT_BYTES, NAME_LIMIT = 65536, 200  # another user's file, and names in it, may be of any length
TURN = "\0trainyard-ports"  # a name of the kernel's, free again when its process ends
TURN_SECONDS, POLL_SECONDS = 10.0, 0.02

Claim = dict[str, Any]  # as `take` writes it, and the path and user of its file


def take(mark: FolderMark, ports: Ports, *, folder: str = "", network: str = "") -> None:
    """Claim ports for a stack, and give up its earlier claims.

    While the stack is there, its folder bears the mark, or its network of Docker is there.

    Raises:
        ServiceError: others have claimed some of them, or no file can be written.
    """
    place = {"folder": folder, "network": network, "engine": os.environ.get("DOCKER_HOST", "")}
    maker = os.getpid(), psutil.Process().create_time()
    with _turn():
        path = ""
        try:
            descriptor, path = tempfile.mkstemp(prefix=PREFIX, dir=FOLDER)
            with os.fdopen(descriptor, "w") as file:
                json.dump({"mark": asdict(mark), "ports": ports, "maker": maker, **place}, file)
                os.fchmod(descriptor, MODE)
            # Written before the look: of two that do not wait for their turn, both see the other.
            faults = conflicts(mark.id, ports)
        except OSError as error:
            faults = [f"no claim of ports can be written to {FOLDER} ({error.strerror}): make room"]
        if faults:
            Path(path).unlink() if path else None
            raise ServiceError("\n".join(faults))
        for each in _own():
            if str(each["path"]) != path and (each["mark"].id == mark.id or not _counts(each)):
                each["path"].unlink(missing_ok=True)


def release(id_: str) -> None:
    """Remove the claim of a stack, by the id of its mark."""
    for each in (each for each in _own() if each["mark"].id == id_):
        each["path"].unlink(missing_ok=True)


def has(id_: str) -> bool:
    """Return whether a stack has a claim, by the id of its mark."""
    return any(each["mark"].id == id_ for each in _own())


def conflicts(id_: str, ports: Ports) -> list[str]:
    """Return a line for each port that another stack has claimed, and what to do; [] for none."""
    lines, ways_out = [], set()
    for claim in (each for each in every() if each["mark"].id != id_):
        named = str(claim["mark"])[:NAME_LIMIT]
        for setting, number in ((key, int(each)) for key in ports for each in ports[key]):
            if theirs := [key for key, numbers in claim["ports"].items() if number in numbers]:
                lines.append(f"port {number} ({setting}) is claimed by {named} ({theirs[0]})")
                whose = "" if claim["user"] == os.getuid() else f" (user {claim['user']}, or root)"
                ways_out.add(f"If {named} is gone for good: rm {claim['path']}{whose}")
    return [*lines, advice(), *sorted(ways_out)] if lines else []


def every() -> list[Claim]:
    """Return the claims of all stacks that exist or start, as far as this user can see."""
    return [each for each in _all() if _counts(each)]


def _own() -> list[Claim]:
    return [each for each in _all() if each["user"] == os.getuid()]


def _all() -> Iterator[Claim]:
    for path in sorted(FOLDER.glob(f"{PREFIX}*")):
        # Any user may have written or removed files there.
        with suppress(Exception):
            with open(path, "rb", opener=_open) as file:
                user = os.fstat(file.fileno()).st_uid
                found = json.loads(file.read(LIMIT_BYTES))
            (pid, start), ports = found["maker"], found["ports"].items()
            yield {key: str(found[key]) for key in ("folder", "network", "engine")} | {
                "mark": FolderMark.of(found["mark"]),
                "ports": {str(key): [*map(int, numbers)] for key, numbers in ports},
                "maker": (int(pid), float(start)),
                "path": path,
                "user": user,
            }


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _counts(claim: Claim) -> bool:
    if claim["user"] != os.getuid():
        return True
    with suppress(psutil.Error, ValueError, OverflowError):
        if psutil.Process(claim["maker"][0]).create_time() == claim["maker"][1]:
            return True
    if claim["folder"]:
        found = folders.read_mark(Path(claim["folder"]))
        return found is not None and found.id == claim["mark"].id
    with suppress(Exception):  # no Engine answers, or this machine lacks the module
        from trainyard.access import docker_client  # noqa: PLC0415

        if claim["engine"] == os.environ.get(docker_client.HOST, ""):
            engine = docker_client.connect(int(TURN_SECONDS))
            return bool(engine.networks.list(names=[claim["network"]]))
    return True


@contextmanager
def _turn() -> Iterator[None]:
    """Wait until no other process claims ports, but not long for one that keeps the name."""
    with socket.socket(socket.AF_UNIX) as turn:
        deadline = time.monotonic() + TURN_SECONDS
        while time.monotonic() < deadline:
            with suppress(OSError):
                turn.bind(TURN)
                break
            time.sleep(POLL_SECONDS)
        yield
