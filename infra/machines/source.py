"""The contract of all sources of a stack's machines: SSH hosts and each cloud."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.model import Fault
from infra.machines.holdings import Account
from infra.settings.nodes import Group

MAX_MACHINES = 64  # of a stack


class FleetSettings:
    """A stack's settings for one source; made without inspecting anything.

    The defaults are those of machines that are all alike and have no end.
    """

    @property
    def count(self) -> int:
        """Number of machines, without groups that grow."""
        raise NotImplementedError

    def most(self, groups: Sequence[Group]) -> int:
        """Return the largest number of machines, including those that groups of nodes add."""
        return self.count + sum(group.count for group in groups if group.growth)

    @property
    def ends_itself(self) -> bool:
        """Whether the machines have a deadline, at which they end themselves."""
        return False

    @property
    def group_sizes(self) -> Mapping[str, int] | None:
        """How many machines name each group of nodes; None where groups have sizes of their own."""
        return None

    def faults(self) -> Iterable[Fault]:
        """Yield machines that do not go together."""
        return ()

    def end_faults(self, *, reserved: bool) -> Iterable[Fault]:  # noqa: ARG002
        """Yield conflicts with a reservation, or with its absence."""
        return ()

    def launcher_faults(self) -> Iterable[Fault]:
        """Yield conflicts with Ray's own launcher, which startRay = false uses."""
        return ()

    def group_faults(self, groups: Sequence[Group]) -> Iterable[Fault]:  # noqa: ARG002
        """Yield conflicts with the groups of nodes that are set, if any."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A source that rents machines out.

    Attributes:
        title: its name in messages.
        api_key: the secret setting that may hold one.
        api_key_text: its line in the list of settings.
        instance: property of a resource's `host` with the id of a rented machine. Each cloud has
            its own one, which also tells in states which cloud a machine is from.
        account: opens the account of this environment, or else of the setting's value, which may
            be None.
        module: the module in the types of its resources in states. docs/ARCHITECTURE.md lists their
            names and the properties that are read.
    """

    title: str
    api_key: str
    api_key_text: str
    instance: str
    account: Callable[[str | None], Account]
    module: str


@dataclass(frozen=True, kw_only=True)
class MachineSource:
    """Where machines come from.

    Attributes:
        field: its default, which asks for none, and its description.
        fleet: returns the machines that a value of the setting asks for; None for none.
        cloud: None where nothing is rented.
    """

    setting: str
    declared: Any
    field: Any
    fleet: Callable[[Any], FleetSettings | None]
    cloud: Cloud | None = None
