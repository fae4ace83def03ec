"""Descriptors: the facts about services before they are declared.

Settings, images, limits, ports, the gateway's routes and the stack's outputs are derived from it:
a new service is one module of this package and its line in `cluster/services.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from cluster.ray_node import NodeResources

if TYPE_CHECKING:
    from cluster.stack import Stack


class Source(Enum):
    """Where the program of a service comes from when it runs as a process."""

    ENVIRONMENT = auto()  # a command of the Python environment
    MACHINE = auto()  # built by `make monitoring`, or on PATH; without it the service does not run
    BUILT = auto()  # built by Go from pinned sources
    MODULE = auto()  # a file of ours for the environment's Python, which has no image
    CHECKOUT = auto()  # a script of this checkout, which other machines do not have
    IMAGE = auto()  # its image only: it does not run as a process


@dataclass(frozen=True, kw_only=True)
class Text:
    """A setting that is a text.

    Attributes:
        pattern: regular expression that all of it must match.
        bound: what that means, for error messages.
        action: what to do.
        secret: whether it may be a secret: its value is never shown.
    """

    pattern: str
    bound: str
    action: str
    secret: bool = True


@dataclass(frozen=True, kw_only=True)
class PortSetting:
    """A port that has a setting; `Pulumi.yaml` has its default.

    Attributes:
        key: of the setting.
        published: whether users reach it, through the gateway also from other machines.
        password: whether the gateway asks for a password, because the service does not.
        each_node: whether each Ray node has one, numbered from the setting's on.
        waking: whether it is open only where the head wakes nodes on other machines.
    """

    key: str
    published: bool = True
    password: bool = False
    each_node: bool = False
    waking: bool = False


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Bounds of one container.

    Attributes:
        memory_mib: memory in MiB, with shared memory and the page cache in use; 0 where the
            service itself knows it.
        processes: processes and threads.
    """

    memory_mib: int
    processes: int


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A URL that the stack exports.

    Attributes:
        title: the service's name for users.
        url: name of the output; "" is exported where the service does not run.
        login: name of the secret output with the password or token, "" for none.
        user: name to log in with, "" for a token.
        secret: whether the URL itself holds a token.
    """

    title: str
    url: str
    login: str = ""
    user: str = ""
    secret: bool = False

    @property
    def outputs(self) -> dict[str, bool]:
        """Names of its outputs, each with whether it is a secret."""
        return {self.url: self.secret} | ({self.login: True} if self.login else {})

    @property
    def described(self) -> dict[str, str]:
        """Its entry in the stack's output `services`."""
        return {"title": self.title, "url": self.url, "login": self.login, "user": self.user}


class Settings(Protocol):
    """The settings of a stack that services read."""

    @property
    def head(self) -> NodeResources:
        """What the head of the Ray cluster offers to jobs."""
        ...

    @property
    def bucket(self) -> str:
        """Name of the bucket for jobs."""
        ...

    @property
    def ports(self) -> Mapping[str, int]:
        """Port numbers by setting."""
        ...

    @property
    def of_services(self) -> Mapping[str, Any]:
        """Values of the settings that descriptors name."""
        ...

    @property
    def dataset(self) -> Any:
        """Source of the data volume; None without one."""
        ...

    @property
    def allowed_cidrs(self) -> tuple[str, ...]:
        """IPv4 networks that may connect."""
        ...

    @property
    def publish_address(self) -> str:
        """This machine's address for them."""
        ...

    @property
    def connections_per_address(self) -> int:
        """Most connections that one of their addresses may have open."""
        ...


@dataclass(frozen=True, kw_only=True)
class Descriptor:
    """A service, or several of one kind.

    Attributes:
        program: its program's name for runtimes; also its folder in docker/.
        declare: declares it in a stack, and stores there what other services need.
        service: name of the service that has the ports, "" for the program's.
        more: names of further services, by the number of workers.
        image: reference of the image that is pulled, "" for one built from docker/<program>.
        source: where a process gets its program from.
        commands: names that it may have on a machine's PATH, () for the program's.
        ports: its settings of ports.
        limit: bounds of its container, of each where there are several.
        shared: whether jobs on other machines reach it.
        settings: its own settings: `bool`, the allowed words, or a text.
        wanted: whether the settings ask for it.
        endpoints: what the stack exports of it.
    """

    program: str
    declare: Callable[[Stack], None]
    service: str = ""
    more: Callable[[int], tuple[str, ...]] = lambda _: ()
    image: str = ""
    source: Source = Source.IMAGE
    commands: tuple[str, ...] = ()
    ports: tuple[PortSetting, ...] = ()
    limit: Limit
    shared: bool = False
    settings: Mapping[str, type[bool] | tuple[str, ...] | Text] = field(default_factory=dict)
    wanted: Callable[[Settings], bool] = lambda _: True
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def name(self) -> str:
        """Name of the service that has the ports."""
        return self.service or self.program

    @property
    def names(self) -> tuple[str, ...]:
        """Names that its program may have on a machine's PATH."""
        return self.commands or (self.program,)

    def services(self, workers: int) -> tuple[str, ...]:
        """Return the names of its services in a stack of so many workers."""
        return (self.name, *self.more(workers))
