"""Another machine as a stack uses it, however it came to be there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

AGENT = "agent"  # folders in the base folder
ENVIRONMENT = "env"
PROGRAMS = "bin"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Machines that a stack asks for with the same words.

    Attributes:
        name: of the group; its machines are NAME-0 and so on.
        type: what each of them has to be, as its source puts it; {} where they are there already.
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
        name: of it in the stack: host-0 and so on.
        number: the same, as a number: of its Ray worker too.
        group: that it is one of.
        identity: what another machine does not have, whatever its address: user@address, or the
            id of an instance.
        connection: what `access.ssh.Connection.of` takes, the key to log in a secret; of
            a rented one also its id, under the name that its cloud gives it (`fleet.Cloud`).
        address: that the other machines of the stack reach it by.
        interface: network interface that the address is on, "" where nothing tells.
        home: absolute home folder of its user.
        base: absolute folder of what the stack puts there, beside state and data.
        python_environment: absolute folder of an environment with Ray that is there, "" for one
            that is to be made.
        cpus, memory_mib, gpus: what its Ray worker has to share out.
        programs: absolute paths of what is installed there, by program.
        after: what has to be there before anything is put on it.
        part_of: resource that the machine itself is, with which everything on it goes.
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
        """Property `host` of what is put there."""
        return {**self.connection, "agent": f"{self.base}/{AGENT}", "python": self.python}

    def options(
        self, parent: pulumi.Resource, depends_on: Sequence[pulumi.Resource] = ()
    ) -> pulumi.ResourceOptions:
        """Return the options of what is put there."""
        return pulumi.ResourceOptions(
            parent=parent,
            depends_on=[*self.after, *depends_on],
            # A machine that is ended takes all of it along: nobody has to log in for that.
            deleted_with=self.part_of,
        )
