"""Finds the programs that hold ports of this machine."""

import socket
from collections.abc import Collection, Iterable, Mapping

import psutil

from infra.runtimes.owned_processes import STACK

LAST_PORT = 65535
COMMAND_LIMIT = 60  # characters of a holder's command line that a message shows
OFFSET_STEP = 100


class PortsInUseError(Exception):
    """One or more ports are held by other programs; the message has a line for each."""


def refuse_held(ports: Mapping[str, list[int]]) -> None:
    """Raise if another program listens on any of the ports.

    Args:
        ports: port numbers by the setting that changes them.

    Raises:
        PortsInUseError: names each port, who holds it, and what to do.
    """
    if faults := held(ports):
        raise PortsInUseError("\n".join([*faults, advice(ports)]))


def held(ports: Mapping[str, list[int]], own: Collection[int] = ()) -> list[str]:
    """Return a line for each port that a program listens on.

    Args:
        ports: port numbers by the setting that changes them.
        own: ids of processes that do not count.
    """
    wanted = {number for numbers in ports.values() for number in numbers}
    if not wanted:
        return []
    holders = {
        connection.laddr.port: connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port in wanted
        and connection.pid not in own
    }
    return [
        f"port {number} ({setting}) is held by {_holder(holders[number])}"
        for setting, numbers in ports.items()
        for number in numbers
        if number in holders
    ]


def advice(ports: Mapping[str, list[int]]) -> str:
    """Return what to do about ports that others hold."""
    wanted = [number for numbers in ports.values() for number in numbers]
    steps = range(OFFSET_STEP, LAST_PORT - max(wanted) + 1, OFFSET_STEP)
    step = next((step for step in steps if _are_free(number + step for number in wanted)), 0)
    move = (
        f"add {step} to its setting portOffset (`python -m engine config set portOffset {step}` if "
        "it has none)"
        if step
        else "change its settings of ports"
    )
    return f"Stop what holds them, or move all ports of the stack: {move}"


def _holder(pid: int | None) -> str:
    if pid is None:
        return "a program of another user"
    try:
        process = psutil.Process(pid)
        command = " ".join(process.cmdline()).strip()[:COMMAND_LIMIT]
        return f"{process.name()} (pid {pid}: {command}){_stack(process)}"
    except psutil.Error:
        return f"pid {pid}"


def _stack(process: psutil.Process) -> str:
    """The stack that a process is of, with a comma before; "" where it is of none, or not known."""
    for each in (process, *process.parents()):  # some programs write over their environment
        try:
            label = each.environ().get(STACK, "")
        except psutil.Error:
            continue
        if label:
            return f", {label.partition(' ')[2]}"
    return ""


def _are_free(numbers: Iterable[int]) -> bool:
    for number in numbers:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                return False
    return True
