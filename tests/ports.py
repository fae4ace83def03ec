"""Ports for services of tests."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Consecutive ports that were free a moment ago, and that no call before has returned.

    Not from port 0's range, from which the kernel serves everybody: Ray's nodes open dozens of
    ports there and would now and then take one before the service that it was meant for.
    """
    while True:
        first = random.randrange(10000, 32000)
        ports = list(range(first, first + count))
        if not _given.isdisjoint(ports):  # a service that is about to start
            continue
        try:
            with ExitStack() as held:
                for port in ports:
                    held.enter_context(socket.create_server(("", port)))
        except OSError:
            continue
        _given.update(ports)
        return ports
