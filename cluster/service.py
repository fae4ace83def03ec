"""A service and where it runs, described without naming a container, a process or a cloud.

Deliberately absent: anything about how a service is started. A component asks its Runtime for
paths and addresses and hands it a Service; it never asks which runtime it has.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

import pulumi

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME_LIMIT = 40  # characters: a name becomes part of socket paths, which Linux cuts at 107 bytes


@dataclass(frozen=True, kw_only=True)
class Port:
    """A port that a service listens on.

    Attributes:
        number: TCP port, 1024 to 65535.
        setting: configuration key that changes it, for error messages.
        published: whether users of this machine reach it, next to the services of the stack.
        public: whether others reach it too.
    """

    number: int
    setting: str
    published: bool = False
    public: bool = False


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """An HTTP GET that answers 200 once the service can be used."""

    port: int
    path: str

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ValueError(f"health check path {self.path!r} must start with '/'")


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A folder of a service.

    Attributes:
        name: unique within the service, or within the stack for a shared one.
        keep: whether its content outlives a destroy of the stack.
        shared: whether every service of the stack that names it has the same folder.
        read_only: whether the service only reads it, where the runtime can see to that.
        mount: where its image expects it; "" for any place.
        source: {"path": …}, {"nfs": "SERVER:/…"} or {"claim": …} of one that is not the stack's.
    """

    name: str
    keep: bool = False
    shared: bool = False
    read_only: bool = False
    mount: str = ""
    source: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LeaveSteps:
    """Steps before a running service is restarted for a change.

    Attributes:
        file: a Python script among the service's files. With `users` after the arguments it prints
            a JSON list of users who would lose something; with `drain SECONDS` it makes them leave,
            and waits for it.
        drains: whether users can leave; otherwise the service is not restarted while it has any.
    """

    file: str
    arguments: Sequence[pulumi.Input[str]]
    drains: bool


class Probe(Enum):
    """The program with which an image sends an HTTP request."""

    CURL = auto()
    WGET = auto()  # as BusyBox has it
    BASH = auto()  # its /dev/tcp


@dataclass(frozen=True, kw_only=True)
class Service:
    """One program on one host: it runs for as long as the stack does, or once to its end.

    Attributes:
        name: unique within the stack; lowercase words joined by hyphens.
        program: which program, by the name that its descriptor has.
        arguments: its command line after the program; never holds a secret.
        script: one of its files, which the program's own Python runs in place of the program.
        environment: variables beyond those that the runtime sets; never holds a secret.
        files: content of its configuration files by name.
        secrets: content of its secret files by name; only the service and root can read them.
        host_files: paths of files of the host that it reads, by name.
        ports: every fixed port that it listens on.
        health: it is up when all of these answer; none for one that runs once.
        listens: ports of the host that have to accept connections too; a container has its own.
        steady_seconds: for which it has to run until it is up.
        probe: the program with which its image asks them.
        once: whether it runs to a successful end instead of staying.
        gpus: indexes of the host's accelerators that it may use; others are hidden from it.
        shared_memory_mib: shared memory that it needs, in MiB; 0 for the runtime's own default.
        memory_mib: memory that it may use, in MiB, where the runtime bounds it; 0 for the runtime's
            own bound.
        stop_seconds: how long it may take to end before it is killed; 0 kills it at once, for
            services that need no graceful shutdown.
        on_demand: whether it is declared only, and another service starts and stops it.
        leave: the steps before it is restarted; None if a restart disturbs nobody.
    """

    name: str
    program: str
    arguments: Sequence[pulumi.Input[str]]
    script: str = ""
    environment: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    files: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    secrets: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    host_files: Mapping[str, str] = field(default_factory=dict)
    volumes: Sequence[Volume] = ()
    ports: Sequence[Port] = ()
    health: Sequence[HealthCheck] = ()
    listens: Sequence[int] = ()
    steady_seconds: int = 0
    probe: Probe = Probe.CURL
    once: bool = False
    gpus: Sequence[int] = ()
    shared_memory_mib: pulumi.Input[int] = 0
    memory_mib: pulumi.Input[int] = 0
    stop_seconds: int = 20
    on_demand: bool = False
    leave: LeaveSteps | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name) or len(self.name) > NAME_LIMIT:
            raise ValueError(
                f"service name {self.name!r} must be lowercase words joined by hyphens, "
                f"at most {NAME_LIMIT} characters"
            )
        if not self.health and not self.once:
            raise ValueError(f"service {self.name} has no health check: nobody could wait for it")


class Runtime(Protocol):
    """How services run: as supervised processes, as containers, or as pods of a cluster."""

    @property
    def via(self) -> Mapping[str, pulumi.Input[Any]] | None:
        """How this Pulumi program reaches published ports; None means directly.

        Otherwise it is through a machine, as `trainyard.access.ssh.Connection.of` takes it, or in a
        cluster, as `trainyard.access.kubectl.Cluster.of` takes it.
        """

    def listen_address(self, service: str) -> pulumi.Input[str]:
        """Return the address that a service listens on to be reached by its intended clients."""

    def node_address(self, index: int) -> pulumi.Input[str]:
        """Return the address of a Ray node, 0 for the head; "" where Ray finds it out."""

    def address(self, service: str, port: int) -> pulumi.Input[str]:
        """Return host:port at which other services reach the port of a service."""

    def published(self, service: str, port: int) -> pulumi.Input[str]:
        """Return host:port at which this Pulumi program, or `via`, reaches a published port."""

    def public(self, service: str, port: int) -> pulumi.Input[str]:
        """Return host:port at which users reach a published port, also from other machines."""

    def file(self, service: str, name: str) -> str:
        """Return the path at which a service finds one of its files or secrets."""

    def volume(self, service: str, volume: Volume) -> str:
        """Return the path at which a service finds one of its volumes."""

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        """Declare a service; the returned resource exists once it is up, or has ended well."""
