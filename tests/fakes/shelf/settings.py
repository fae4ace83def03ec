"""The setting of the shelf, and what it is as a cloud."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.hosts.fleet import Cloud, Fleet, FleetArgs, Source
from infra.node_settings import NodeGroup
from infra.reader import Reader

from . import account

SETTING = "shelf"


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """Machines to rent."""

    count: int
    max_hourly_cost: float
    ttl_hours: float
    group_sizes: Mapping[str, int] | None = None

    def most(self, groups: Sequence[NodeGroup]) -> int:
        return self.count

    @property
    def ends_itself(self) -> bool:
        return self.ttl_hours > 0

    def check_launcher(self, reader: Reader) -> None:
        """Nothing can conflict."""

    def check_groups(self, reader: Reader, groups: Sequence[NodeGroup]) -> None:
        """Nothing can conflict."""

    def open(self, args: FleetArgs) -> Fleet:
        raise NotImplementedError("files are not reached by SSH")


def read(reader: Reader) -> Shelf | None:
    fields = reader.object(SETTING, "write an object")
    if not fields:
        return None
    return Shelf(
        count=fields["machines"],
        max_hourly_cost=fields["maxHourlyCost"],
        ttl_hours=fields["ttlHours"],
    )


SOURCE = Source(
    setting=SETTING,
    nothing="{}",
    read=read,
    cloud=Cloud(
        title="Shelf",
        api_key="shelfKey",
        instance="shelfMachine",
        account=account.ShelfAccount,
        module="shelf",
    ),
)
