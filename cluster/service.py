"""A service and where it runs, said without naming a container, a process or a cloud.

Deliberately absent: anything about how a service is started. A component asks its Runtime for
paths and addresses and hands it a Service; it never asks which runtime it has.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pulumi

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME_LIMIT = 40  # characters: a name becomes part of socket paths, which Linux cuts at 107 bytes


@dataclass(frozen=True, kw_only=True)
class Port:
    """A port that a service listens on.

    Attributes:
        number: TCP port, 1024 to 65535.
        setting: configuration key that changes it, for error messages.
    """

    number: int
    setting: str


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """An HTTP GET that answers 200 once the service can be used.

    Attributes:
        port: TCP port of the service.
        path: path of the URL.
    """

    port: int
    path: str

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ValueError(f"health check path {self.path!r} must start with '/'")


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A folder that a service writes to.

    Attributes:
        name: unique within the service.
        keep: whether its content outlives a destroy of the stack.
    """

    name: str
    keep: bool = False


@dataclass(frozen=True, kw_only=True)
class Service:
    """One long-running program on one host.

    Attributes:
        name: unique within the stack; lowercase words joined by hyphens.
        program: which program, by the name that runtimes know it by: "ray", "minio", "prometheus".
        arguments: its command line after the program; never holds a secret.
        environment: variables beyond those that the runtime sets; never holds a secret.
        files: content of its configuration files by name.
        secrets: content of its secret files by name; a runtime keeps them at mode 0600.
        volumes: folders that it writes to.
        ports: every fixed port that it listens on.
        health: it is up when all of these answer.
        stop_seconds: how long it may take to end by itself before it is killed; 0 kills it at
            once, for what has nothing to bring to an end.
    """

    name: str
    program: str
    arguments: Sequence[pulumi.Input[str]]
    environment: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    files: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    secrets: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    volumes: Sequence[Volume] = ()
    ports: Sequence[Port]
    health: Sequence[HealthCheck]
    stop_seconds: int = 20

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name) or len(self.name) > NAME_LIMIT:
            raise ValueError(
                f"service name {self.name!r} must be lowercase words joined by hyphens, "
                f"at most {NAME_LIMIT} characters"
            )
        if not self.health:
            raise ValueError(f"service {self.name} has no health check: nobody could wait for it")


class Runtime(Protocol):
    """How services run on a host: as supervised processes, or as containers.

    Attributes:
        bind_address: address that a service listens on to be reached by those it is meant for.
    """

    bind_address: str

    def node_address(self, index: int) -> str:
        """Return the address that a Ray node is known by; "" where Ray finds it out.

        Args:
            index: 0 for the head, then the workers.
        """
        ...

    def address(self, service: str, port: int) -> str:
        """Return host:port at which other services reach the port of a service."""
        ...

    def published(self, service: str, port: int) -> str:
        """Return host:port at which users, and this Pulumi program, reach the port."""
        ...

    def file(self, service: str, name: str) -> str:
        """Return the path at which a service finds one of its files or secrets."""
        ...

    def volume(self, service: str, volume: Volume) -> str:
        """Return the path at which a service finds one of its volumes."""
        ...

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        """Declare a service; the returned resource exists once its health checks answer."""
        ...
