"""Another machine as a stack uses it, whatever its source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

AGENT = "agent"  # folders in the base folder
ENVIRONMENT = "env"
PROGRAMS = "bin"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Machines that a stack asks for in the same way.

    Attributes:
        name: of the group; its machines are NAME-0 and so on.
        type: requirements for each, in the form of its source; {} where they exist already.
        count: how many.
        resources: fields that are set for the Ray worker on each, as of the setting `worker`; the
            machine decides the others.
        label: of the Ray nodes on them, "" for none.
    """

    name: str
    type: Mapping[str, Any]
    count: int
    resources: Mapping[str, Any]
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine reached by SSH.

    Attributes:
        name: in the stack: host-0 and so on.
        number: the number in its name; also of its Ray worker.
        group: its group.
        identity: unique to the machine, whatever its address: user@address, or the id of an
            instance.
        connection: argument of `trainyard.access.ssh.Connection.of`, with the login key as a
            secret; of a rented one also its id, under its cloud's name for it (`fleet.Cloud`).
        address: for the other machines of the stack.
        interface: network interface that the address is on, "" if unknown.
        home: absolute home folder of its user.
        base: absolute folder of the stack's files there, apart from state and data.
        python_environment: absolute folder of an existing environment with Ray, "" to make
            one.
        cpus, memory_mib, gpus: resources of its Ray worker.
        programs: absolute paths of installed programs, by program.
        after: resources that have to exist before anything is put on it.
        part_of: resource of the machine itself, with which everything on it goes.
    """

    name: str
    number: int
    group: Group
    identity: pulumi.Input[str]
    connection: Mapping[str, pulumi.Input[Any]]
    address: pulumi.Input[str]
    interface: pulumi.Input[str]
    home: str
    base: str
    python_environment: str
    cpus: pulumi.Input[int]
    memory_mib: pulumi.Input[int]
    gpus: pulumi.Input[int]
    programs: Mapping[str, str]
    after: Sequence[pulumi.Resource] = ()
    part_of: pulumi.Resource | None = None

    @property
    def python(self) -> str:
        """Path of the Python that runs everything there."""
        return f"{self.environment}/bin/python"

    @property
    def environment(self) -> str:
        """Folder of the Python environment."""
        return self.python_environment or f"{self.base}/{ENVIRONMENT}"

    def path(self, text: str) -> str:
        """Return an absolute path there; `~` is the home folder of its user."""
        return f"{self.home}{text[1:]}" if text.startswith("~/") else text

    @property
    def host(self) -> dict[str, pulumi.Input[Any]]:
        """Property `host` of the resources on it."""
        return {**self.connection, "agent": f"{self.base}/{AGENT}", "python": self.python}

    def options(
        self, parent: pulumi.Resource, depends_on: Sequence[pulumi.Resource] = ()
    ) -> pulumi.ResourceOptions:
        """Return the options of the resources on it."""
        return pulumi.ResourceOptions(
            parent=parent,
            depends_on=[*self.after, *depends_on],
            # Everything on a machine goes with it: no login is needed for that.
            deleted_with=self.part_of,
        )
