"""Finds the programs that hold ports of this machine."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from node.life import ServiceError
from node.owned_processes import STACK

SOCKETS = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
LISTEN = "0A"  # state of a socket there
COMMAND_LIMIT = 60  # characters of a holder's command line that a message shows

Ports = Mapping[str, list[int]]  # numbers by the setting that changes them


def refuse_held(ports: Ports, own: Collection[int] = ()) -> None:
    """Raise a ServiceError that names each port that is held, its holder, and what to do."""
    if faults := describe_listening(ports, own):
        raise ServiceError("\n".join([*faults, advice()]))


def by_setting(pairs: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return ports, given with their settings, by setting."""
    found: dict[str, list[int]] = {}
    for setting, number in pairs:
        found.setdefault(setting, []).append(number)
    return found


def new_ports(before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]) -> Ports:
    """Return the ports that are new, by setting; no setting without any."""
    old = {number for numbers in before.values() for number in numbers}
    new = {key: [int(number) for number in after[key] if number not in old] for key in after}
    return {setting: numbers for setting, numbers in new.items() if numbers}


def describe_listening(ports: Ports, own: Collection[int] = ()) -> list[str]:
    """Return a line for each port that a program listens on; see holders."""
    return describe_taken(ports, holders(ports, own))


def holders(ports: Ports, own: Collection[int] = ()) -> dict[int, str]:
    """Return who holds which of the ports; processes of `own`, by id, do not count."""
    wanted = {number for numbers in ports.values() for number in numbers}
    found = listeners(own) if wanted else {}
    return {number: f"held by {_holder(found[number])}" for number in wanted & found.keys()}


def describe_taken(ports: Ports, by: Mapping[int, str]) -> list[str]:
    """Return a line for each port that is held."""
    return [
        f"port {number} ({setting}) is {by[number]}"
        for setting, numbers in ports.items()
        for number in numbers
        if number in by
    ]


def listeners(own: Collection[int] = ()) -> dict[int, int | None]:
    """Return the TCP ports that programs listen on, each with the id of one of the processes.

    A port that can be bound need not be free: SO_REUSEPORT lets two programs listen on it. The id
    is None for a process of another user, which only root can see. Those of `own` do not count.
    """
    return {
        connection.laddr.port: connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.pid not in own
    }


def are_of(own: Collection[int], ports: Ports) -> bool:
    """Return whether only these processes listen on the ports; False too if that is not known.

    Linux lists all sockets with their numbers, so only the files of these processes are read.
    `listeners` reads those of all processes, which takes 50 ms.
    """
    wanted = {f"{number:04X}" for numbers in ports.values() for number in numbers}
    try:
        rows = [row.split() for each in SOCKETS for row in each.read_text().splitlines()]
    except OSError:
        return False
    others = {f"socket:[{row[9]}]" for row in rows if row[3] == LISTEN and row[1][-4:] in wanted}
    for process in own if others else ():
        with suppress(OSError):  # it has ended
            for file in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):  # it is closed
                    others.discard(str(file.readlink()))
    return not others


def advice() -> str:
    """Return what to do about ports that others hold or have claimed."""
    return (
        "Run `train up --find-ports`: it moves all ports of this stack by a portOffset with which "
        "they are free, and writes that into its settings. Or stop what holds them"
    )


def _holder(pid: int | None) -> str:
    if pid is None:
        return "a program of another user"
    try:
        process = psutil.Process(pid)
        command = " ".join(process.cmdline()).strip()[:COMMAND_LIMIT]
        stack = label(process).partition(" ")[2]
        return f"{process.name()} (pid {pid}: {command}){f', {stack}' if stack else ''}"
    except psutil.Error:
        return f"pid {pid}"


def label(process: psutil.Process) -> str:
    """Return the label of the mark of a process's stack; "" where it is of none, or not known."""
    for each in (process, *process.parents()):  # some programs write over their environment
        try:
            if found := each.environ().get(STACK, ""):
                return found
        except psutil.Error:
            continue
    return ""
