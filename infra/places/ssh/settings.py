"""Settings of existing machines: which ones, and how they are reached.

Deliberately absent: any inspection of a machine.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from cluster.model import Fault, Items, Meaning, Model, Only, matching, setting, whole
from infra.machines.source import MAX_MACHINES, FleetSettings, MachineSource
from infra.settings.nodes import GROUPS, Group

SETTING = "hosts"
SSH_PORT = 22
# Nothing else reaches a command line, a file or another machine.
ADDRESS = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]+"
SET = "set {key} to one"


class SshHost(Model):
    """An existing machine.

    Attributes:
        address: name or address that this machine reaches it by.
        host_key: its public host key, without a name.
        private_address: for the other hosts.
        gpus: number of its GPUs, None to detect it.
        group: of nodes that its worker belongs to, "" for none.
    """

    address: Annotated[str, matching(ADDRESS, "must be a host name or an IP address", SET)]
    user: Annotated[
        str,
        matching(r"[A-Za-z_][A-Za-z0-9._-]{0,31}", "must be a user's name", SET),
    ]
    host_key: Annotated[
        str,
        matching(
            r"(?:ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]+=*",
            "must be the machine's public host key, such as 'ssh-ed25519 AAAA…': nothing else "
            "tells it from one that took its address",
            "log in there and run cat /etc/ssh/ssh_host_ed25519_key.pub, or trust the network "
            "once with ssh-keyscan -t ed25519 {address}; leave out the name and the comment",
        ),
    ]
    port: Annotated[int, whole(1, 65535)] = SSH_PORT
    private_address: Annotated[
        str, matching(ADDRESS, "must be an address that the other hosts reach it by", SET)
    ] = Field(default_factory=lambda fields: str(fields["address"]))
    gpus: Annotated[int | None, whole(0, 64)] = None
    group: Annotated[
        str,
        # nodeGroups says more.
        matching(r"[a-z0-9-]{1,32}", "must be the name of a group", SET),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class Hosts(FleetSettings):
    """The hosts of a stack.

    Attributes:
        hosts: as they are set, the head's first.
    """

    hosts: tuple[SshHost, ...]

    @property
    def count(self) -> int:
        return len(self.hosts)

    def most(self, groups: Sequence[Group]) -> int:  # noqa: ARG002 (groups are of hosts)
        """Number of machines: groups add none."""
        return self.count

    @property
    def group_sizes(self) -> Mapping[str, int]:
        """How many of them name each group of nodes."""
        return Counter(host.group for host in self.hosts)

    def faults(self) -> Iterator[Fault]:
        """Yield hosts that are not machines of their own, or do not reach each other."""
        if self.count > MAX_MACHINES:
            bound = f"must be at most {MAX_MACHINES} machines"
            yield Fault(SETTING, bound, "remove some", self.count)
        places = [(host.address, host.port) for host in self.hosts]
        private = [host.private_address for host in self.hosts]
        for index, address in enumerate(private):
            key = f"{SETTING}[{index}].privateAddress"
            if places[index] in places[:index]:
                yield Fault(
                    f"{SETTING}[{index}]", "is listed twice", "remove one of them", places[index][0]
                )
            elif ":" in address and self.count > 1:
                bound = "must be a name or an IPv4 address where there are several hosts"
                yield Fault(key, bound, f"set {key} to one", address)
            elif address in private[:index]:
                bound = "is that of another host, and each needs one of its own"
                action = f"set {key} to what the other hosts reach it by"
                yield Fault(key, bound, action, address)

    def launcher_faults(self) -> Iterator[Fault]:
        """Yield what Ray's own launcher cannot log in to: its file has one user, no port."""
        if len(users := {host.user for host in self.hosts}) > 1:
            bound = "`ray up` logs in to all hosts as one user, and they have "
            bound += ", ".join(sorted(users))
            yield Fault("startRay", bound, "give them one user, or set startRay to true")
        if ports := sorted({host.port for host in self.hosts} - {SSH_PORT}):
            bound = f"`ray up` logs in at port 22 only, and hosts have {', '.join(map(str, ports))}"
            yield Fault("startRay", bound, "move their SSH servers, or set startRay to true")

    def group_faults(self, groups: Sequence[Group]) -> Iterator[Fault]:
        """Yield hosts whose group is not set, and groups without a host."""
        names = [group.name for group in groups]
        known = f"must be one of nodeGroups: {', '.join(names)}" if names else "needs nodeGroups"
        for index, host in enumerate(self.hosts):
            if host.group not in (names or [""]):
                action = "name one, or remove nodeGroups" if names else "remove it, or set these"
                yield Fault(f"{SETTING}[{index}].group", known, action, host.group)
        for name in names:
            if name not in self.group_sizes:
                bound = "is not the group of any host"
                yield Fault(GROUPS, bound, "name it as the group of one, or remove it", name)


SOURCE = MachineSource(
    setting=SETTING,
    declared=Annotated[
        Items[SshHost],
        Meaning("must be an array", "write a list of machines, such as [{address, user, hostKey}]"),
        Only(("process", "docker")),
    ],
    field=setting(
        (), "Your machines, used over SSH (process; one of them also docker)", see="#hosts"
    ),
    fleet=lambda hosts: Hosts(hosts=hosts) if hosts else None,
)
