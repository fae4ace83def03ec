"""The setting of the shelf, and what it is as a cloud."""

from typing import Annotated

from cluster.model import Model, Only, number, setting, whole
from infra.machines.source import MAX_MACHINES, Cloud, FleetSettings, MachineSource

from . import account


class Shelf(Model, FleetSettings):
    """Machines to rent."""

    machines: Annotated[int, whole(1, MAX_MACHINES)]
    max_hourly_cost: Annotated[float, number(0, 100)]
    ttl_hours: Annotated[float, number(0, 100)]

    @property
    def count(self) -> int:
        return self.machines

    @property
    def ends_itself(self) -> bool:
        return self.ttl_hours > 0


SOURCE = MachineSource(
    setting="shelf",
    declared=Annotated[Shelf | None, Only(("process",))],
    field=setting(None, "Machines to rent from the shelf (process)"),
    fleet=lambda shelf: shelf,
    cloud=Cloud(
        title="Shelf",
        api_key="shelfKey",
        api_key_text="The shelf's key, as a secret",
        instance="shelfMachine",
        account=account.ShelfAccount,
        module="shelf",
    ),
)
