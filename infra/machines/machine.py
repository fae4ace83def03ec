"""A host of a stack: this machine, or another one, whatever its source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi

if TYPE_CHECKING:  # providers load no models
    from infra.settings.nodes import Group

AGENT = "agent"  # folders in the base folder
ENVIRONMENT = "env"
PROGRAMS = "bin"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host of services: this machine, unless it is a Machine.

    Attributes:
        name: in the stack; of other machines host-0 and so on.
        number: 0 for the head's; also the number of a machine's Ray worker.
        address: for the other hosts of the stack.
        interface: network interface that the address is on, "" if unknown.
        programs: absolute paths of installed programs, by program.
    """

    name: str
    number: int
    address: pulumi.Input[str]
    interface: pulumi.Input[str]
    programs: Mapping[str, pulumi.Input[str]]

    @property
    def reached(self) -> dict[str, Any]:
        """The properties of the resources on it that say how it is reached; {} for this machine."""
        return {}

    def path(self, text: str) -> str:
        """Return an absolute path there; `~` is the home folder of its user."""
        return text

    def options(
        self, parent: pulumi.Resource | None, depends_on: Sequence[pulumi.Resource] = ()
    ) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=parent, depends_on=[*depends_on])


@dataclass(frozen=True, kw_only=True)
class Machine(Host):
    """A machine reached by SSH.

    Attributes:
        group: settings of its Ray worker.
        identity: unique to the machine, whatever its address: user@address, or the id of an
            instance.
        connection: argument of `trainyard.access.ssh.Connection.of`, with the login key as a
            secret; of a rented one also its id, under its cloud's name for it (`source.Cloud`).
        home: absolute home folder of its user.
        base: absolute folder of the stack's files there, apart from state and data.
        python_environment: absolute folder of an existing environment with Ray, "" to make
            one.
        cpus, memory_mib, gpus: resources of its Ray worker.
        after: resources that have to exist before anything is put on it.
        part_of: resource of the machine itself, with which everything on it goes.
        engine: the answer of its Docker Engine's API to /info, where containers run and it exists.
    """

    group: "Group"
    identity: pulumi.Input[str]
    connection: Mapping[str, pulumi.Input[Any]]
    home: str
    base: str
    python_environment: str
    cpus: pulumi.Input[int]
    memory_mib: pulumi.Input[int]
    gpus: pulumi.Input[int]
    after: Sequence[pulumi.Resource] = ()
    part_of: pulumi.Resource | None = None
    engine: Mapping[str, Any] | None = None

    @property
    def python(self) -> str:
        """Path of the Python that runs everything there."""
        return f"{self.environment}/bin/python"

    @property
    def environment(self) -> str:
        return self.python_environment or f"{self.base}/{ENVIRONMENT}"

    def path(self, text: str) -> str:
        return f"{self.home}{text[1:]}" if text.startswith("~/") else text

    @property
    def reached(self) -> dict[str, Any]:
        """Properties `host` and `machine` of the resources on it."""
        host = {**self.connection, "agent": f"{self.base}/{AGENT}", "python": self.python}
        return {"host": host, "machine": self.identity}

    def options(
        self, parent: pulumi.Resource | None, depends_on: Sequence[pulumi.Resource] = ()
    ) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=parent,
            depends_on=[*self.after, *depends_on],
            # Everything on a machine goes with it: no login is needed for that.
            deleted_with=self.part_of,
        )


def this_machine(programs: Mapping[str, pulumi.Input[str]]) -> Host:
    """Return this machine as the only host of a stack."""
    return Host(name="local", number=0, address=LOOPBACK, interface="", programs=programs)
