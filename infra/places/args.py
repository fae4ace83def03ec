"""Arguments that the runtimes of machines share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.service import Port

if TYPE_CHECKING:  # it imports the services, which import runtimes' parts
    from cluster.descriptor import Descriptor
    from infra.settings.config import Settings


@dataclass(frozen=True, kw_only=True)
class RuntimeArgs:
    """Arguments of a runtime on machines.

    Attributes:
        store: name of the object store, "" for a folder.
    """

    settings: "Settings"
    running: Sequence["Descriptor"]
    store: str

    @property
    def ports(self) -> list[Port]:
        """Every port of the stack, so that all conflicts are reported at once."""
        return self.settings.opened(self.running)

    @property
    def end(self) -> str:
        """When all services end, in ISO 8601; "" for never."""
        reservation = self.settings.reservation
        return reservation.end.isoformat() if reservation else ""
