"""Arguments that the runtimes of machines share."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.service import Port


@dataclass(frozen=True, kw_only=True)
class RuntimeArgs:
    """Arguments of a runtime on machines.

    Attributes:
        ports: every port of the stack, so that all conflicts are reported at once.
        store: name of the object store, "" for a folder.
        keep_data: whether results outlive the stack.
        start_timeout: seconds that a service may take until it answers.
        drain: seconds that its users may take to leave before it restarts.
        end: when all services end, in ISO 8601; "" for never.
    """

    ports: Sequence[Port]
    store: str
    keep_data: bool
    start_timeout: int
    drain: int
    end: str = ""
