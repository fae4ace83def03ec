"""Settings of existing machines: which ones, and how they are reached.

Deliberately absent: any inspection of a machine.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.hosts.fleet import MAX_MACHINES, Fleet, FleetArgs, Source
from infra.node_settings import GROUPS, NodeGroup
from infra.reader import Reader
from infra.setting_fields import known, text, whole

SETTING = "hosts"
SSH_PORT = 22
# Nothing else reaches a command line, a file or another machine.
ADDRESS = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]+", re.ASCII
)
USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}")
HOST_KEY = re.compile(r"(?:ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]+=*")
GROUP = re.compile(r"[a-z0-9-]{1,32}")  # nodeGroups says more
FIELDS = ("address", "user", "hostKey", "port", "privateAddress", "gpus", "group")


@dataclass(frozen=True, kw_only=True)
class Host:
    """An existing machine.

    Attributes:
        address: name or address that this machine reaches it by.
        user: who to log in as.
        host_key: its public host key, without a name.
        port: of its SSH server.
        private_address: for the other hosts.
        gpus: number of its GPUs, None to detect it.
        group: of nodes that its worker belongs to, "" for none.
    """

    address: str
    user: str
    host_key: str
    port: int
    private_address: str
    gpus: int | None
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The hosts of a stack.

    Attributes:
        hosts: as they are set, the head's first.
    """

    hosts: tuple[Host, ...]

    @property
    def count(self) -> int:
        """Number of machines."""
        return len(self.hosts)

    def most(self, groups: Sequence[NodeGroup]) -> int:  # noqa: ARG002 (groups are of hosts)
        """Number of machines: groups add none."""
        return self.count

    @property
    def ends_itself(self) -> bool:
        """Never: existing machines have no deadline."""
        return False

    @property
    def group_sizes(self) -> Mapping[str, int]:
        """How many of them name each group of nodes."""
        return Counter(host.group for host in self.hosts)

    def check_launcher(self, reader: Reader) -> None:
        """Note hosts that Ray's own launcher cannot log in to: its file has one user, no port."""
        if len({host.user for host in self.hosts}) > 1:
            users = ", ".join(sorted({host.user for host in self.hosts}))
            bound = f"`ray up` logs in to all hosts as one user, and they have {users}"
            reader.fault("startRay", "false", bound, "give them one user, or set startRay to true")
        if ports := sorted({host.port for host in self.hosts} - {SSH_PORT}):
            bound = f"`ray up` logs in at port 22 only, and hosts have {', '.join(map(str, ports))}"
            action = "move their SSH servers, or set startRay to true"
            reader.fault("startRay", "false", bound, action)

    def check_groups(self, reader: Reader, groups: Sequence[NodeGroup]) -> None:
        """Note hosts whose group is not set, and groups without a host."""
        names = [group.name for group in groups]
        known = f"must be one of nodeGroups: {', '.join(names)}" if names else "needs nodeGroups"
        for index, host in enumerate(self.hosts):
            if host.group not in (names or [""]):
                action = "name one, or remove nodeGroups" if names else "remove it, or set these"
                reader.fault(f"{SETTING}[{index}].group", host.group, known, action)
        for name in names:
            if name not in [host.group for host in self.hosts]:
                bound = "is not the group of any host"
                reader.fault(GROUPS, name, bound, "name it as the group of one, or remove it")

    def open(self, args: FleetArgs) -> Fleet:
        """Inspect and return the machines; see FleetSettings."""
        from infra.hosts.ssh.fleet import SshFleet  # noqa: PLC0415

        return SshFleet(self.hosts, args)


def read(reader: Reader) -> Hosts | None:
    """Return the existing machines; None for none."""
    key = SETTING
    given = reader.array(key, "write a list of machines, such as [{address, user, hostKey}]")
    if len(given) > MAX_MACHINES:
        reader.fault(key, len(given), f"must be at most {MAX_MACHINES} machines", "remove some")
    found = tuple(
        _host(reader, f"{key}[{i}]", value) for i, value in enumerate(given[:MAX_MACHINES])
    )
    places = [(host.address, host.port) for host in found]
    for index, place in enumerate(places):
        if place[0] and place in places[:index]:
            reader.fault(f"{key}[{index}]", place[0], "is listed twice", "remove one of them")
        elif len(found) > 1:
            _check_among(reader, f"{key}[{index}].privateAddress", found, index)
    return Hosts(hosts=found) if found else None


def _check_among(reader: Reader, key: str, found: tuple[Host, ...], index: int) -> None:
    """Check the address of a host for the other hosts."""
    address = found[index].private_address
    if ":" in address:
        bound = "must be a name or an IPv4 address where there are several hosts"
        reader.fault(key, address, bound, f"set {key} to one")
    elif address and address in [host.private_address for host in found[:index]]:
        bound = "is that of another host, and each needs one of its own"
        reader.fault(key, address, bound, f"set {key} to what the other hosts reach it by")


def _host(reader: Reader, key: str, value: Any) -> Host:
    fields = known(reader, key, value, FIELDS)
    address = text(
        reader, f"{key}.address", fields, ADDRESS, "must be a host name or an IP address", ""
    )
    return Host(
        address=address,
        user=text(reader, f"{key}.user", fields, USER, "must be a user's name", ""),
        host_key=text(
            reader,
            f"{key}.hostKey",
            fields,
            HOST_KEY,
            "must be the machine's public host key, such as 'ssh-ed25519 AAAA…': nothing else "
            "tells it from one that took its address",
            f"log in there and run cat /etc/ssh/ssh_host_ed25519_key.pub, or trust the network "
            f"once with ssh-keyscan -t ed25519 {address or 'ADDRESS'}; leave out the name and "
            "the comment",
        ),
        port=whole(reader, f"{key}.port", fields, 1, 65535, SSH_PORT),
        private_address=text(
            reader,
            f"{key}.privateAddress",
            fields,
            ADDRESS,
            "must be an address that the other hosts reach it by",
            "",
        )
        if "privateAddress" in fields
        else address,
        gpus=whole(reader, f"{key}.gpus", fields, 0, 64, 0) if "gpus" in fields else None,
        group=text(reader, f"{key}.group", fields, GROUP, "must be the name of a group", "")
        if "group" in fields
        else "",
    )


SOURCE = Source(setting=SETTING, nothing="[]", read=read)
