"""Ports for services of tests."""

import random
import socket
from contextlib import ExitStack

from node import claims

# Below 32768, from which the kernel serves everybody: Ray's nodes open dozens of ports there and
# would now and then take one before the service that it was meant for.
FIRST, LAST = 10000, 32000
SHARES = 5  # test processes side by side; a sixth takes any port
TRIES = 10_000
MARK = "trainyard-test-ports"  # begins the names of the shares that are taken

_given: set[int] = set()
_share: tuple[socket.socket, range] | None = None


def free_ports(count: int) -> list[int]:
    """Consecutive ports that were free a moment ago, and that no call before has returned.

    Test processes that run side by side have shares of their own: a port is free until the service
    it was chosen for has started, and two processes would choose the same one.
    """
    share = _own_share()
    claimed = {port for each in claims.every() for some in each["ports"].values() for port in some}
    for _ in range(TRIES):
        first = random.randrange(share.start, share.stop - count)
        ports = list(range(first, first + count))
        if not (_given | claimed).isdisjoint(ports):  # a service that is about to start
            continue
        try:
            with ExitStack() as held:
                for port in ports:
                    held.enter_context(socket.create_server(("", port)))
        except OSError:
            continue
        _given.update(ports)
        return ports
    raise RuntimeError(f"no {count} free ports in {share} after {TRIES} tries")


def _own_share() -> range:
    """The share of this process, until it ends."""
    global _share  # noqa: PLW0603
    if _share is None:
        size = (LAST - FIRST) // SHARES
        for number in range(SHARES):
            mark = socket.socket(socket.AF_UNIX)
            try:
                # A name that the kernel frees, also after a kill.
                mark.bind(f"\0{MARK}-{number}")
            except OSError:
                mark.close()
                continue
            first = FIRST + number * size
            _share = mark, range(first, first + size)
            break
        else:
            return range(FIRST, LAST)
    return _share[1]
