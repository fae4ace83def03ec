"""The free disk of a stack's nodes, where Ray unpacks uploads and makes environments."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard import usage
from trainyard.access.bounded import MIB
from trainyard.client import fields
from trainyard.client.console import say
from trainyard.client.dashboard import Dashboard, DashboardError, UnreadableError
from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs

if TYPE_CHECKING:
    from trainyard.client.package import Packed

T = TypeVar("T")

TIMEOUT_S = 5
GIB = 2**30
# On a fuller disk Ray stores no objects that exceed memory (RAY_local_fs_capacity_threshold).
LEAST_FREE = 0.05
NO_SIZE = 1  # bytes; in pods Ray reports it for the real size, unless it is told not to


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The disk of a node's Ray folder."""

    node: str  # "head", or the address of another node; with commas those of one machine
    free: int  # in bytes
    size: int  # in bytes

    def __str__(self) -> str:
        return f"{self.node} {self.free / GIB:.1f} of {self.size / GIB:.1f} GiB free"


def of_nodes(outputs: StackOutputs) -> list[Disk]:
    """Asks the dashboard, which looks every few seconds; a new node's disk may be missing.

    Raises:
        DashboardError: it cannot be asked.
    """
    disks = summary(outputs, of_node)
    return sorted(filter(None, disks), key=lambda disk: (disk.node[:4] != "head", disk.node))


def summary(
    outputs: StackOutputs,
    decode: Callable[[Any], T],
    otherwise: Callable[[Any, str], T] | None = None,
) -> list[T]:
    """Return the living nodes by machine, decoded as `fields.decoded` does.

    Raises:
        DashboardError: it cannot be asked.
    """
    found = Dashboard(outputs).get("/nodes?view=summary", TIMEOUT_S)
    try:
        return fields.decoded(usage.by_machine(found["data"]["summary"]), decode, otherwise)
    except fields.FAULTS as error:
        raise UnreadableError(f"no list of nodes: {fields.reason(error)}") from None


def row(outputs: StackOutputs) -> str:
    """Return the disks for a line of `train info`, or why they are not known."""
    try:
        return "; ".join(map(str, of_nodes(outputs))) or "not known"
    except DashboardError as error:
        return f"not known: the dashboard does not answer ({error})"


def known(outputs: StackOutputs) -> list[Disk]:
    """Return the disks, none if the dashboard cannot be asked."""
    try:
        return of_nodes(outputs)
    except DashboardError:
        return []


def check_room(disks: list[Disk], packed: Packed) -> None:
    """Refuses an upload for which no node has room; warns of nodes that it would fill.

    A node keeps a package and its content. How much the packages of a `pip` list take is not known.

    Raises:
        ClientError: naming the node with the most room.
    """
    if not disks:
        return
    needed = sum(len(content) + _content(content) for content in packed.packages.values())
    largest = max(disks, key=lambda disk: disk.free)
    if largest.free < needed:
        raise ClientError(
            f"the upload takes {needed / MIB:.1f} MiB on a node's disk, and no node has that: the "
            f"most is {largest.free / MIB:.1f} MiB, on {largest.node}; leave files out "
            "(.rayignore), or make room on the nodes"
        )
    for disk in disks:
        if disk.free - needed < LEAST_FREE * disk.size:
            say(
                f"warning: disk of {disk}: with less than {LEAST_FREE:.0%} Ray stores no objects "
                "there that exceed memory, and packages may not fit; remove files on that node"
            )


def _content(package: bytes) -> int:
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def of_node(node: Any) -> Disk | None:
    """Return the disk of one node of the dashboard's list; None if it is not known."""
    if not node.get("disk"):
        return None
    # The file system's root, then that of Ray's folder.
    place = [*node["disk"].values()][-1]
    if place["total"] <= NO_SIZE:
        return None
    return Disk(node=node["name"], free=int(place["free"]), size=int(place["total"]))
