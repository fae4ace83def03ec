"""Finds the program that holds a port of this machine."""

import socket
from collections.abc import Mapping

import psutil

LAST_PORT = 65535
COMMAND_LIMIT = 60  # characters of a holder's command line that a message shows


class PortsInUseError(Exception):
    """One or more ports are held by other programs; the message has a line for each."""


def refuse_held(ports: Mapping[str, list[int]]) -> None:
    """Raise if another program listens on any of the ports.

    Args:
        ports: port numbers by the setting that changes them.

    Raises:
        PortsInUseError: names each port, who holds it, and the setting.
    """
    wanted = {number for numbers in ports.values() for number in numbers}
    holders = {
        connection.laddr.port: connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port in wanted
    }
    taken = wanted | set(holders)
    faults = []
    for setting, numbers in ports.items():
        for number in numbers:
            if number in holders:
                taken.add(free := _free(number, taken))
                faults.append(
                    f"port {number} ({setting}) is held by {_holder(holders[number])}. "
                    f"Stop it, or set another port: `python -m engine config set {setting} {free}`"
                )
    if faults:
        raise PortsInUseError("\n".join(faults))


def _holder(pid: int | None) -> str:
    if pid is None:
        return "a program of another user"
    try:
        process = psutil.Process(pid)
        command = " ".join(process.cmdline()).strip()[:COMMAND_LIMIT]
        return f"{process.name()} (pid {pid}: {command})"
    except psutil.Error:
        return f"pid {pid}"


def _free(port: int, taken: set[int]) -> int:
    """Return the next port that nothing listens on."""
    for candidate in (*range(port + 1, LAST_PORT + 1), *range(1024, port)):
        if candidate in taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return int(candidate)
    raise PortsInUseError("no port of this machine is free")
