"""Descriptors: facts about services before their declaration, and the stack during it.

Settings, images, limits, ports, the gateway's routes and the stack's outputs are derived from a
descriptor: a new service is one module of this package and its line in `cluster/services.py`.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

import pulumi

from cluster import autoscaling
from cluster.autoscaling import RayNodeProvider
from cluster.ray_node import HEAD, NodeAddition, NodeResources
from cluster.secret import TOKEN_BYTES, Secret
from cluster.service import Runtime, Volume
from cluster.storage import FOLDER, Storage


class Source(Enum):
    """The origin of a service's program when it runs as a process."""

    ENVIRONMENT = auto()  # a command of the Python environment
    MACHINE = auto()  # built by `make monitoring`, or on PATH; without it the service does not run
    BUILT = auto()  # built by Go from pinned sources
    MODULE = auto()  # a file of ours for the environment's Python, which has no image
    # A script of this checkout, or of `commands` that of its environment.
    CHECKOUT = auto()
    # A script of this checkout, which needs what `make NAME` installs.
    ADDED = auto()
    IMAGE = auto()  # its image only: it does not run as a process


@dataclass(frozen=True)
class PortSetting:
    """A port that has a setting.

    Attributes:
        default: its number.
        description: one line for the list of settings.
        published: whether users reach it, through the gateway also from other machines.
        password: whether the gateway asks for a password, because the service does not.
        each_node: whether each Ray node has one, numbered from the setting's on.
        waking: whether it is open only where the head wakes nodes on other machines.
    """

    key: str
    default: int
    description: str
    _: KW_ONLY
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
    def entry(self) -> dict[str, str]:
        return {"title": self.title, "url": self.url, "login": self.login, "user": self.user}


class ServiceSettings(Protocol):
    """The settings of a stack that services read."""

    @property
    def head(self) -> NodeResources:
        """Resources that the head of the Ray cluster offers to jobs."""

    @property
    def ports(self) -> Mapping[str, int]:
        """Port numbers by setting."""

    @property
    def of_services(self) -> Mapping[str, Any]:
        """Values of the settings that descriptors name."""

    @property
    def dataset(self) -> Any:
        """Source of the data volume; None without one."""

    @property
    def renting(self) -> str:
        """The setting that asks for rented machines, "" for none."""
        ...

    @property
    def before_end_seconds(self) -> int:
        """Time that the user's command before the end may take, 0 without one."""
        ...

    @property
    def allowed_cidrs(self) -> tuple[str, ...]:
        """IPv4 networks that may connect."""

    @property
    def publish_address(self) -> str:
        """This machine's address for them."""


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
        limit: bounds of its container, or of each of its containers.
        shared: whether jobs on other machines reach it.
        settings: its own settings, by name: the type with its markers, and the field.
        endpoints: its addresses in the stack's outputs.
    """

    program: str
    declare: Callable[["Stack"], object]
    service: str = ""
    more: Callable[[int], tuple[str, ...]] = lambda _: ()
    image: str = ""
    source: Source = Source.IMAGE
    commands: tuple[str, ...] = ()
    ports: tuple[PortSetting, ...] = ()
    limit: Limit
    shared: bool = False
    settings: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    wanted: Callable[[ServiceSettings], bool] = lambda _: True
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


@dataclass(kw_only=True)
class Stack:
    """A stack; its services are declared in the order of `services`.

    Attributes:
        python: major.minor of the nodes' Python (default: the version that runs this).
        gpus: indexes of the host's accelerators that each worker may use; () for none.
        data: folder of data that outlives the stack, where the runtime has one.
        connections: how users reach what addresses refer to, by the output; {} for this machine.
        token: bearer token of every Ray endpoint.
        serve_token: bearer token of every served model; users who may ask a model must not be able
            to run code on the cluster.
        storage: where jobs keep their results; a folder unless an object store is declared.
        node_provider: starts and stops workers of groups that grow; None if none does.
        requests_folder: folder on the head's machine with the files that name the requested
            machines of an elastic group; "" without such a group.
        on_demand: how many elastic workers run only when they are needed.
        elastic: indexes of workers whose machines are launched and ended on request.
        not_launched: indexes of those among them whose machines do not exist now.
        reserved_from: when its reservation begins, in ISO 8601; "" without one.
        expires_at: when the services, or rented machines, end themselves; "" for never.
        idle_token: bearer token for asking whether the cluster is idle, "" without a watch.
        notebook: url and token of the notebook for other services; {} without one.
        prometheus: URL of Prometheus for other services; None without one.
        volumes: folders from outside the stack, for Ray nodes and the notebook.
        additions: what services add to Ray nodes.
        outputs: outputs of the services, by name.
    """

    runtime: Runtime
    settings: ServiceSettings
    services: Sequence[Descriptor]
    workers: Sequence[pulumi.Input[NodeResources]]
    gpus: Sequence[Sequence[int]] = ()
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    data: str = ""
    connections: Mapping[str, Mapping[str, pulumi.Input[Any]]] = field(default_factory=dict)
    token: pulumi.Input[str] = field(default_factory=lambda: Secret("ray-token", TOKEN_BYTES).value)
    serve_token: pulumi.Input[str] = field(
        default_factory=lambda: Secret("serve-token", TOKEN_BYTES).value
    )
    storage: Storage = field(init=False)
    node_provider: RayNodeProvider | None = None
    requests_folder: str = ""
    on_demand: int = 0
    elastic: Collection[int] = ()
    not_launched: Collection[int] = ()
    reserved_from: str = ""
    expires_at: pulumi.Input[str] = ""
    idle_token: pulumi.Input[str] = ""
    notebook: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    prometheus: pulumi.Input[str] | None = None
    volumes: Sequence[Volume] = ()
    additions: list[NodeAddition] = field(default_factory=list)
    outputs: dict[str, pulumi.Input[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.storage = Storage(url=f"file://{self.data}/{FOLDER}")

    @property
    def head(self) -> NodeResources:
        """Resources that the head offers to jobs."""
        return self.settings.head

    @property
    def on_workers(self) -> list[NodeAddition]:
        """Additions of services to all Ray nodes, also the workers."""
        return [addition for addition in self.additions if not addition.head_only]

    @property
    def nodes(self) -> int:
        """How many Ray nodes the stack always has; a missing one is an alert."""
        ray = [each for each in self.services if each.name == HEAD]
        declared = sum(len(each.services(len(self.workers))) for each in ray)
        return declared - self.on_demand - autoscaling.on_demand(self.workers)

    def port(self, key: str) -> int:
        return self.settings.ports[key]

    def address(self, service: str, key: str) -> pulumi.Input[str]:
        """Return host:port of a service for other services, "" where it does not run."""
        runs = any(each.name == service for each in self.services)
        return self.runtime.address(service, self.port(key)) if runs else ""


class Component(pulumi.ComponentResource):
    """The base of the components of services.

    Attributes:
        url: the service's URL, for users, if it has one.
        password: what it asks for, if it asks; a secret.
    """

    url: pulumi.Output[str]
    password: pulumi.Output[str]

    def __init__(self, name: str, stack: Stack, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(f"trainyard:cluster:{type(self).__name__}", name, None, opts)
        self.name, self.child = name, pulumi.ResourceOptions(parent=self)
        self.declare(stack)
        outputs = {
            key: value for key, value in vars(self).items() if key in Component.__annotations__
        }
        self.register_outputs(outputs)

    def declare(self, stack: Stack) -> None:
        """Declare the service, and store in the stack what other services need."""
        raise NotImplementedError

    def export(self, stack: Stack, endpoint: Endpoint, url: pulumi.Input[str]) -> None:
        """Have the stack export the URL, without http://, and the password."""
        self.url = stack.outputs[endpoint.url] = pulumi.Output.concat("http://", url)
        if "password" in vars(self):
            stack.outputs[endpoint.login] = self.password
