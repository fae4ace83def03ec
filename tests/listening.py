"""Listening programs and their ports, in this network namespace or in another process's."""

import ipaddress
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"  # the state of a TCP socket, as the kernel writes it


class Listener(NamedTuple):
    """A TCP socket that listens."""

    program: str  # "" where it belongs to none of the processes
    address: str
    port: int


def listeners(processes: Iterable[int]) -> set[Listener]:
    """Every listening TCP socket of the network namespace of some processes, with its program.

    Args:
        processes: process ids of one namespace, as this machine knows them; at least one.
    """
    ids = list(processes)
    owners = {inode: _program(pid) for pid in ids for inode in _inodes(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{ids[0]}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                address, port = fields[1].split(":")
                found.add(Listener(owners.get(fields[9], ""), _address(address), int(port, 16)))
    return found


def kernel_chooses(port: int) -> bool:
    """Whether a port is in the range from which the kernel chooses."""
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(low) <= port <= int(high)


def _inodes(pid: int) -> list[str]:
    found = []
    with suppress(OSError):  # it ended
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                link = str(file.readlink())
                if link.startswith("socket:["):
                    found.append(link[len("socket:[") : -1])
    return found


def _program(pid: int) -> str:
    """Name of a process, without the numbers and states that some put into theirs."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _address(digits: str) -> str:
    words = [int(digits[i : i + 8], 16) for i in range(0, len(digits), 8)]
    raw = b"".join(struct.pack("=I", word) for word in words)
    if len(raw) == 4:
        return socket.inet_ntoa(raw)
    address = ipaddress.IPv6Address(raw)
    return str(address.ipv4_mapped or address)
