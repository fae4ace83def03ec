"""The contract of all sources of a stack's machines: SSH hosts and each cloud.

Deliberately absent: this machine. It needs no login and nothing is installed on it (`this_machine`
in machine.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi

from cluster.model import Fault
from cluster.ray_node import NodeResources
from infra.machines.holdings import Account
from infra.machines.machine import Machine
from infra.settings.nodes import Group

if TYPE_CHECKING:  # it imports the sources
    from infra.settings.config import Settings

MAX_MACHINES = 64  # of a stack


@dataclass(frozen=True, kw_only=True)
class IdleWatch:
    """The service on the head's machine that knows whether the cluster is idle.

    Attributes:
        token: bearer token that a request needs.
    """

    port: int
    token: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class FleetArgs:
    """A stack's requirements for its machines, whatever their source.

    Attributes:
        settings: of the stack. Without startRay, Ray's launcher copies the private key to the head,
            where jobs read it: then no machine holds a secret of the account.
        requested: numbers of the machines of groups that grow that have to exist now.
        idle: service that machines which end themselves ask too; None where only the deadline
            counts.
    """

    settings: Settings
    requested: Sequence[int] = ()
    idle: IdleWatch | None = None

    @property
    def base(self) -> str:
        """Folder of the stack's files on each, below the home folder."""
        return f".trainyard/{pulumi.get_project()}-{pulumi.get_stack()}"

    @property
    def containers(self) -> bool:
        """Whether services are containers, which bring their Python."""
        return self.settings.runtime == "docker"


@dataclass(frozen=True, kw_only=True)
class Login:
    """How users log in.

    Attributes:
        key_file: private key on this machine, "" for the SSH agent.
        hands_out_key: whether the outputs hold the key, because their readers may lack the file.
    """

    key_file: str
    hands_out_key: bool

    def output(self, machine: Machine) -> dict[str, pulumi.Input[Any]]:
        """Return the output `ssh` for a machine."""
        fields = ("host", "port", "user", "hostKey")
        file = "" if self.hands_out_key else self.key_file
        return {key: machine.connection[key] for key in fields} | {
            "keyFile": file,
            "privateKey": "" if file else machine.connection["privateKey"],
        }


@dataclass(frozen=True, kw_only=True)
class ElasticGroup:
    """Machines of a group that grows, whether they exist now or not; all are alike.

    Attributes:
        numbers: of the machines in the stack.
        least: how many are always requested.
        resources: offered by the worker of each.
    """

    numbers: range
    least: int
    resources: pulumi.Input[NodeResources]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The machines of a stack.

    Attributes:
        machines: the machines, the head's first; of an elastic group, the requested ones.
        elastic_group: the group that grows; None where all machines exist always.
        expires_at: when they end themselves, in ISO 8601; "" for never.
    """

    machines: Sequence[Machine]
    login: Login
    elastic_group: ElasticGroup | None = None
    expires_at: pulumi.Input[str] = ""


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
        module: of its resources, as their types in states have it; docs/ARCHITECTURE.md has their
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
        setting: name of the setting that asks for its machines.
        declared: type of the setting.
        field: its default, which asks for none, and its description.
        fleet: returns the machines that a value of the setting asks for; None for none.
        cloud: None where nothing is rented.
    """

    setting: str
    declared: Any
    field: Any
    fleet: Callable[[Any], FleetSettings | None]
    cloud: Cloud | None = None
