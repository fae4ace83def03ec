"""Read answers of HTTP servers up to a bound: a service may send anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

MIB = 2**20
MOST_MIB = 64


class TooLongError(ValueError):
    """An answer is longer than its bound."""

    def __init__(self, most_mib: int) -> None:
        super().__init__(f"more than {most_mib} MiB, which are not read")


def content(reply: BaseHTTPResponse, most_mib: int = MOST_MIB) -> bytes:
    """Read and return a reply that was requested with `preload_content=False`.

    Raises:
        TooLongError: the reply is longer.
        HTTPError: the reply was cut off.
    """
    found = bytearray()
    for piece in reply.stream(MIB):
        found += piece
        if len(found) > most_mib * MIB:
            reply.close()
            raise TooLongError(most_mib)
    reply.release_conn()
    return bytes(found)
