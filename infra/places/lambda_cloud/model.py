"""The data of Lambda Cloud's API that this project uses, and checks of each answer.

The rest is dropped, above all the token and address of the Jupyter server that runs on every
instance. A value of another type than the API's is an error, never converted.
"""

from typing import Any, Generic, TypeVar

from pydantic import AliasPath, BaseModel, ConfigDict, Field

T = TypeVar("T")


class Reply(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(frozen=True, strict=True)


class Envelope(Reply, Generic[T]):
    """The whole answer of a call that succeeded."""

    data: T


def _at(*path: str) -> Any:
    """Return a field that the answer has inside other objects."""
    return Field(validation_alias=AliasPath(*path))


class Region(Reply):
    """A region."""

    name: str


class Offer(Reply):
    """A type of instance.

    Attributes:
        name: for example gpu_1x_a10.
    """

    name: str = _at("instance_type", "name")
    gpu_description: str = _at("instance_type", "gpu_description")
    price_cents_per_hour: int = _at("instance_type", "price_cents_per_hour")
    vcpus: int = _at("instance_type", "specs", "vcpus")
    memory_gib: int = _at("instance_type", "specs", "memory_gib")
    gpus: int = _at("instance_type", "specs", "gpus")
    regions_with_capacity_available: list[Region]

    @property
    def price(self) -> float:
        """$/h of one instance."""
        return self.price_cents_per_hour / 100

    @property
    def regions(self) -> list[str]:
        """Names of the regions that report capacity; the launch has the last word."""
        return [region.name for region in self.regions_with_capacity_available]


class Tag(Reply):
    """A tag of an instance."""

    key: str
    value: str


class Machine(Reply):
    """An instance.

    Attributes:
        ip: public IPv4 address, None until there is one.
        private_ip: IPv4 address in the region, None until there is one.
        status: booting, active, unhealthy, terminating, terminated, preempted, or what a newer API
            says.
    """

    id: str
    name: str | None = None
    ip: str | None = None
    private_ip: str | None = None
    status: str
    region: str = _at("region", "name")
    instance_type: str = _at("instance_type", "name")
    price_cents_per_hour: int = _at("instance_type", "price_cents_per_hour")
    tag_list: list[Tag] | None = Field(None, validation_alias="tags")

    @property
    def tags(self) -> dict[str, str]:
        """Its tags: values by key."""
        return {tag.key: tag.value for tag in self.tag_list or ()}


class LaunchReply(Reply):
    """The one instance that a launch gives."""

    instance_ids: list[str] = Field(min_length=1, max_length=1)


class Nothing(Reply):
    """An answer of which nothing is needed but success."""


class SshKey(Reply):
    """An SSH key of the account; its public key is one line, as in authorized_keys."""

    id: str
    name: str
    public_key: str


class FileSystem(Reply):
    """A persistent file system; its mount point is an absolute path on instances."""

    id: str
    name: str
    region: str = _at("region", "name")
    mount_point: str


class FirewallRule(Reply):
    """One kind of traffic that is let in.

    Attributes:
        protocol: tcp, udp, icmp or all.
        source_network: CIDR.
        port_range: first and last port; None where the protocol has none.
    """

    protocol: str
    source_network: str
    description: str | None = None
    port_range: tuple[int, int] | None = None


class FirewallRuleset(Reply):
    """Rules of one region."""

    id: str
    name: str
    region: str = _at("region", "name")
    rules: list[FirewallRule]
