"""The data of Lambda Cloud's API that this project uses.

The rest is dropped, above all the token and address of the Jupyter server that runs on every
instance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A type of instance.

    Attributes:
        name: for example gpu_1x_a10.
        price_cents_per_hour: of one instance.
        regions: names of those that report capacity; the launch has the last word.
    """

    name: str
    description: str
    gpu_description: str
    price_cents_per_hour: int
    vcpus: int
    memory_gib: int
    storage_gib: int
    gpus: int
    regions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An instance.

    Attributes:
        ip: public IPv4 address, "" until there is one.
        private_ip: IPv4 address in the region, "" until there is one.
        status: booting, active, unhealthy, terminating, terminated, preempted, or what a newer API
            says.
    """

    id: str
    name: str
    ip: str
    private_ip: str
    status: str
    region: str
    instance_type: str
    hostname: str
    tags: dict[str, str]
    ssh_key_names: tuple[str, ...]
    firewall_ruleset_ids: tuple[str, ...]
    price_cents_per_hour: int


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """The request of one launch.

    Attributes:
        ssh_key_name: name of a key of the account; the API takes exactly one.
        user_data: for cloud-init, at most 1 MB; may hold secrets.
        tags: values by key (pattern ^[a-z][a-z0-9-:]+$, at most 55 characters), each at most 128.
        file_system_mounts: ids by mount point (below /home, /lambda/nfs or /data); of the same
            region.
        firewall_ruleset_ids: of the same region; none means the account's global rules.
    """

    region: str
    instance_type: str
    ssh_key_name: str
    name: str
    hostname: str = ""
    user_data: str = field(default="", repr=False)
    tags: Mapping[str, str] = field(default_factory=dict)
    file_system_mounts: Mapping[str, str] = field(default_factory=dict)
    firewall_ruleset_ids: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class SshKey:
    """An SSH key of the account.

    Attributes:
        public_key: one line, as in authorized_keys.
        private_key: only in the answer in which the API hands it out, otherwise "".
    """

    id: str
    name: str
    public_key: str
    private_key: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """A persistent file system.

    Attributes:
        mount_point: absolute path on instances.
    """

    id: str
    name: str
    region: str
    mount_point: str
    in_use: bool


@dataclass(frozen=True, kw_only=True)
class FirewallRule:
    """One kind of traffic that is let in.

    Attributes:
        protocol: tcp, udp, icmp or all.
        source_network: CIDR.
        port_range: first and last port; None where the protocol has none.
    """

    protocol: str
    source_network: str
    description: str
    port_range: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class FirewallRuleset:
    """Rules of one region, and the instances that they are for."""

    id: str
    name: str
    region: str
    rules: tuple[FirewallRule, ...]
    instance_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Image:
    """A disk image that instances start from."""

    id: str
    name: str
    family: str
    version: str
    architecture: str
    region: str
