"""The stack's settings: the only reader of pulumi.Config.

Defaults and descriptions are here, in the models of places and in the descriptors of services;
`make docs` writes Pulumi.yaml and docs/configuration.md from them. All faults are found before
anything is made, and reported in one message.
"""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret
from pydantic import Field, PrivateAttr, ValidationError, create_model

from cluster import idle_end, model, object_store, replica, secret, services
from cluster.descriptor import Descriptor
from cluster.model import (
    ABSOLUTE,
    NAMES,
    Fault,
    Items,
    Known,
    Meaning,
    Model,
    Only,
    Says,
    matching,
    one_of,
    satisfying,
    setting,
    whole,
)
from cluster.ray_node import NodeResources
from cluster.service import NAME_LIMIT, Port
from infra.machines import local, sources, tools
from infra.machines.local import LocalHost
from infra.machines.source import FleetSettings
from infra.settings import containers as container_settings
from infra.settings import hosts as host_settings
from infra.settings import images, reservation, versions
from infra.settings import kubernetes as kubernetes_settings
from infra.settings import nodes as node_settings
from infra.settings import volumes as volume_settings
from infra.settings.container_limits import Limits
from infra.settings.containers import Dataset
from infra.settings.kubernetes import Kubernetes
from infra.settings.nodes import MAX_WORKERS, Group, Node
from infra.settings.reservation import Reservation
from node import folders
from trainyard.access import typed

FIRST_PORT, LAST_PORT = 1024, 65535  # Ray refuses ports below
RUNTIMES = ("auto", "docker", "process", kubernetes_settings.KEY)
OBJECT_STORES = (tools.AUTO, *object_store.STORES, tools.DIRECTORY)
# Ray's longest sockets leave this many of the 107 bytes that a Unix socket's path may have:
# /ray-worker-63/ray/session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store
STATE_DIR_LIMIT = 25
STATE_DIR = re.compile(r"/[A-Za-z0-9._/-]+")  # other characters mean something to supervisord
# A container's name is a host name on the stack's network, whose parts end at 63 characters.
PREFIX_LIMIT = 63 - NAME_LIMIT
OWNER = satisfying(
    lambda text: len(text) <= 100 and text.isprintable(),
    "must be at most 100 characters that print",
    "set {key} to such a text",
)
HOST_DATA = Path("~/.local/share/trainyard")  # of data that outlives a stack, on hosts
# The results of a stack without an object store are at file://<dataDir>/storage.
IN_URL = re.compile(r"[A-Za-z0-9/._~@+=,:-]{1,255}", re.ASCII)
CONTAINERS = Only(("docker",))
IMAGES = Only(("docker", kubernetes_settings.KEY))
PROCESSES = Only(("process",))
MACHINES = Only(machines=True)
OFFSET = "portOffset"
PORT = Annotated[int, whole(FIRST_PORT, LAST_PORT)]
PLACES = tuple(each.setting for each in sources.SOURCES)
# Settings that services' descriptors name: type and field of each.
OF_SERVICES = {key: own for service in services.ALL for key, own in service.settings.items()}
OF_PROCESSES = {"setupCommands", "pythonEnvironment", "startRay"}
ROTATED = "remove it: `make rotate` writes it"


Check = Callable[["Settings"], Iterator[Fault]]
# Checks of settings taken together, each with the settings that it needs: while one of them is at
# fault itself, the check would judge its default.
CHECKS: list[tuple[Collection[str], Check]] = []


def check(*needs: str) -> Callable[[Check], Check]:
    """Add a check that needs settings to the list."""

    def add(found: Check) -> Check:
        CHECKS.append((needs, found))
        return found

    return add


class Settings(Model):
    """The settings of a stack, complete and checked; names and units are those of Pulumi.yaml.

    Those of services and of sources of machines are fields too, under their own names.
    """

    asked_runtime: Annotated[str, one_of(RUNTIMES)] = setting(
        "auto",
        "`docker` (containers), `process` (supervised processes), `auto` (one of these two) or "
        "`kubernetes`",
        see="#runtime",
        alias="runtime",
    )
    kubernetes: Kubernetes | None = setting(
        None,
        "Context and namespace of a cluster with KubeRay's operator (kubernetes)",
        see="kubernetes.md",
    )
    accelerator: Annotated[str, one_of(("none", "nvidia", "amd")), IMAGES] = setting(
        "none",
        "`none`, `nvidia` or `amd`: GPUs for workers (docker, kubernetes)",
        see="#accelerators",
    )
    worker_count: Annotated[int, whole(1, MAX_WORKERS)] = setting(
        2, "Ray workers, 1 to 64; other machines have one each", alias="workers"
    )
    head_node: Node = setting(
        Node(),
        "Resources of the Ray head for jobs, where it has some to spare",
        see="#nodes",
        alias="head",
    )
    worker_node: Node = setting(
        Node(), "Resources of each worker for jobs", see="#nodes", alias="worker"
    )
    node_groups: Annotated[
        Items[Group],
        Meaning("must be an array", f"write each group's fields: {', '.join(Group.declared())}"),
    ] = setting(
        (),
        "Groups of workers that differ, or grow with demand, instead of `workers` and `worker`",
        see="#node-groups",
    )
    asked_store: Annotated[str, one_of(OBJECT_STORES)] = setting(
        tools.AUTO,
        "`auto`, `versitygw`, `minio` or `directory` (process, kubernetes)",
        see="#storage",
        alias="objectStore",
    )
    store_from: Annotated[
        str,
        matching(
            r"|[A-Za-z0-9][A-Za-z0-9_.-]{0,99}",
            "must be the name of a stack",
            "name another stack",
        ),
        PROCESSES,
    ] = setting(
        "",
        "Another stack of this project, whose object store jobs use instead of one of their own "
        "(process)",
        see="#the-store-of-another-stack",
    )
    rotated: Annotated[
        dict[
            Annotated[str, Known(secret.ROTATABLE)],
            Annotated[
                int,
                Says("must be a whole number from 1 to 1000000", ROTATED, Field(ge=1, le=10**6)),
            ],
        ],
        Meaning("must be an object", ROTATED),
    ] = setting(
        {},
        "How often each secret was rotated, by its name; `make rotate` writes it",
        see="security.md#rotate-a-secret",
    )
    data_folder: Annotated[str, ABSOLUTE, PROCESSES] = setting(
        "",
        "Absolute path of the folder for results, where your home is small (process): letters "
        "a-z, digits and /._~@+=,:-. Default: `$XDG_DATA_HOME/trainyard/<stack>`, on other "
        "machines `~/.local/share/trainyard/<stack>`",
        alias="dataDir",
    )
    keep_data: bool = setting(
        True,
        "Whether `destroy` keeps results: `dataDir`, or volumes; false for clusters made for one "
        "test. Takes effect with the next `up`",
    )
    state_folder: Annotated[str, ABSOLUTE, PROCESSES] = setting(
        "",
        "Absolute path, at most 25 bytes, of the folder for sockets, logs and Ray's files, where "
        "`/var/tmp` is small; removed by `destroy` (process). Default: `/var/tmp/trainyard-<hash>`",
        alias="stateDir",
    )
    start_timeout_seconds: Annotated[int, whole(5, 3600)] = setting(
        120, "Longest wait for a service to be healthy, 5 to 3600; slow machines need more"
    )
    drain_seconds: Annotated[int, whole(0, 3600)] = setting(
        60,
        "Longest wait until runs have left a worker that restarts or ends, 0 to 3600",
        see="#changes-while-jobs-run",
    )
    container_prefix: Annotated[
        str,
        matching(
            rf"(?:[A-Za-z0-9][A-Za-z0-9_.-]{{0,{PREFIX_LIMIT - 1}}})?",
            f"must be at most {PREFIX_LIMIT} letters, digits and . _ - after a letter or digit",
            "set containerPrefix to such a text, such as lab-",
        ),
        CONTAINERS,
    ] = setting(
        "",
        "Prefix of container names, for a second stack of one user on an Engine: 23 letters, "
        "digits and `. _ -` at most (docker). Default: the `owner` and `-`, if set",
    )
    named_images: Annotated[container_settings.Images, IMAGES] = setting(
        {},
        "Images of yours by program, where a registry has them (docker, kubernetes)",
        see="#images",
        alias="images",
    )
    build_args: Annotated[container_settings.BuildArgs, CONTAINERS] = setting(
        {}, "Build arguments of images; images show them, so no secrets (docker)", see="#images"
    )
    image_python: Annotated[str, one_of(("auto", *versions.IMAGE_BASES)), IMAGES] = setting(
        "auto",
        "Python of the images, which chooses their base: `3.11`, `3.12`, `3.13`, or `auto` for "
        "that of the checkout's environment (docker, kubernetes)",
        see="#images",
    )
    container_limits: Annotated[Limits, IMAGES] = setting(
        {},
        "Limits of memory and processes by service, for one that needs more or a machine that has "
        "less (docker, kubernetes)",
        see="#limits",
    )
    dataset: Dataset | None = setting(
        None, "Source of the Food-11 images (this machine, kubernetes)", see="#data-set"
    )
    volumes: volume_settings.Volumes = setting(
        (),
        "Folders from outside the stack, such as data sets, for jobs and the notebook: `[{name, "
        "path | nfs | claim, mount, readOnly}]`",
        see="#volumes",
    )
    allowed_cidrs: Annotated[container_settings.Cidrs, CONTAINERS] = setting(
        (),
        "IPv4 networks that may connect (docker), or log in by SSH (lambdaCloud, required)",
        see="#who-may-connect",
    )
    publish_address: Annotated[container_settings.PublishAddress, CONTAINERS] = setting(
        "", "This machine's IPv4 address for `allowedCidrs`; set both or neither (docker)"
    )
    owner: Annotated[str, OWNER] = setting(
        "",
        "Owner of the stack. `train info` shows it, and so do names and labels of containers and "
        "Kubernetes objects, and names and tags of rented instances. Default: `user@machine`, "
        "which is in no name",
        see="#owner-and-reservation",
    )
    reservation: Reservation | None = setting(
        None,
        "Start and end of the time that the machines are yours, in UTC: `{start: "
        '"2026-12-01T13:00Z", end: "2026-12-01T15:55Z"}`. `up` is refused at other times, and the '
        "services end at its end; a command runs before: `beforeEnd: {run, seconds}`",
        see="#owner-and-reservation",
    )
    key_file: Annotated[host_settings.KeyFile, MACHINES] = setting(
        "",
        "Absolute path (or `~/…`) of your private SSH key, mode 0600. Default: your SSH agent, "
        "for lambdaCloud `~/.ssh/<sshKeyName>.pem`",
        alias="sshKeyFile",
    )
    setup_commands: Annotated[host_settings.Commands, MACHINES] = setting(
        (),
        "Commands that other machines run first; no secrets, the state shows them",
        see="hosts.md",
    )
    python_environment: Annotated[host_settings.PythonEnvironment, MACHINES] = setting(
        "", "Absolute path of an existing Python environment on other machines", see="hosts.md"
    )
    environment_file: Annotated[host_settings.EnvironmentFile, MACHINES] = setting(
        "",
        "File of this project with the packages that other machines get: pip's requirements "
        "(`.txt`), or an environment of conda (`.yaml`)",
        see="hosts.md",
    )
    start_ray: Annotated[bool, MACHINES] = setting(
        True,
        "Whether the stack starts Ray on other machines; false for those who do it by `ray up`",
        see="hosts.md",
    )
    _host: LocalHost = PrivateAttr()
    _stack: str = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Take the machine, whose size fills in what is left out, and the name of the stack."""
        self._host, self._stack = context

    @cached_property
    def of_runtimes(self) -> Mapping[str, list[str]]:
        """Settings that only containers have, and only processes, by runtime."""
        found: dict[str, list[str]] = {"docker": [], "process": []}
        for key, only in self.limited.items():
            if {"docker", "process"} <= {*only.runtimes}:
                continue
            if only.runtimes and not (key == "allowedCidrs" and self.renting):
                found[only.runtimes[0]].append(key)  # there it is a setting of the firewall
        if self.asked_store == tools.DIRECTORY and not self.in_pods:
            found["process"].append("objectStore")
        if self.asked_runtime == "auto":
            if self.growing:
                found["process"].append(node_settings.GROUPS)
            if self.own_data and self.dataset and "volume" in self.dataset.model_fields_set:
                found["docker"].append("dataset.volume")
            if any(each.mount != each.path for each in self.volumes):
                found["docker"].append("volumes")
        return found

    @cached_property
    def limited(self) -> Mapping[str, Only]:
        """Marks of the settings that are set, by setting."""
        return {
            declared.alias or name: mark
            for name, declared in type(self).model_fields.items()
            if getattr(self, name) != declared.default
            for mark in declared.metadata
            if isinstance(mark, Only)
        }

    @property
    def own_data(self) -> str:
        """Name of the data set's own volume; "" without one, or if `volumes` has that name."""
        name = self.dataset.volume if self.dataset else ""
        return "" if any(each.name == name for each in self.volumes) else name

    @property
    def in_pods(self) -> bool:
        return self.asked_runtime == kubernetes_settings.KEY

    @cached_property
    def runtime(self) -> str:
        """The runtime; "auto" only if both processes and containers can do it all."""
        only = [runtime for runtime, keys in self.of_runtimes.items() if keys]
        # On other machines nothing is chosen by what happens to run there.
        only += ["process"] if self.fleet else []
        return only[0] if self.asked_runtime == "auto" and only else self.asked_runtime

    @cached_property
    def object_store(self) -> str:
        """The object store; a stack that has that of another one keeps a folder."""
        return tools.DIRECTORY if self.store_from else self.asked_store

    @cached_property
    def store_of_pods(self) -> str:
        """The object store that runs as a pod; "" where results are in a folder, or elsewhere."""
        elsewhere = self.kubernetes and self.kubernetes.bucket
        none = elsewhere or self.asked_store == tools.DIRECTORY
        return "" if none else tools.in_container(self.object_store)

    @cached_property
    def images(self) -> Mapping[str, str]:
        """Reference of each program's image that is not built here."""
        named = {**images.PULLED, **self.named_images}
        if self.kubernetes and self.kubernetes.image:
            named["ray"] = self.kubernetes.image
        return {program: images.pinned(reference) for program, reference in named.items()}

    @property
    def python(self) -> str:
        """The images' Python: major.minor."""
        asked = self.image_python
        return versions.IMAGE_PYTHON if asked == "auto" else asked

    @property
    def build_arguments(self) -> Mapping[str, str]:
        return versions.build_arguments(self.python, self.build_args)

    @property
    def programs(self) -> set[str]:
        """The programs that run as containers, with all object stores."""
        return {each.program for each in images.IN_CONTAINERS if each.wanted(self)}

    @cached_property
    def of_services(self) -> Mapping[str, Any]:
        return {key: getattr(self, key) for key in OF_SERVICES}

    @cached_property
    def ports(self) -> Mapping[str, int]:
        """Ports by setting, moved by portOffset."""
        return {key: getattr(self, key) + getattr(self, OFFSET) for key in services.PORTS}

    @property
    def fleets(self) -> Mapping[str, FleetSettings]:
        """The sources of machines that are asked, by setting."""
        asked = {each.setting: each.fleet(getattr(self, each.setting)) for each in sources.SOURCES}
        return {name: fleet for name, fleet in asked.items() if fleet}

    @cached_property
    def fleet(self) -> FleetSettings | None:
        """Source of the stack's machines; None for this one alone."""
        return next(reversed([*self.fleets.values()]), None)

    @property
    def renting(self) -> str:
        """The setting that asks for rented machines, "" for none."""
        names = [each.setting for each in sources.SOURCES if each.cloud]
        return next((name for name in names if name in self.fleets), "")

    @property
    def before_end_seconds(self) -> int:
        """Time that the user's command before the end may take, 0 without one."""
        command = self.reservation and self.reservation.before_end
        return command.seconds if command else 0

    @cached_property
    def on_hosts(self) -> int:
        """How many other machines the stack is on at most, 0 for this one."""
        return self.fleet.most(self.groups) if self.fleet else 0

    @cached_property
    def worker(self) -> Group:
        """Workers that are of no group of the settings."""
        return Group.model_construct(name="", count=self.worker_count, **dict(self.worker_node))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Groups of workers; one without a name where no groups are set."""
        sizes = self.fleet.group_sizes if self.fleet else None
        return tuple(group.sized(sizes) for group in self.node_groups) or (self.worker,)

    @property
    def growing(self) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.growth)

    @cached_property
    def head(self) -> NodeResources:
        """Resources of the head: the settings, and little else."""
        return self.head_node.over(node_settings.HEAD)

    @cached_property
    def workers(self) -> tuple[NodeResources, ...]:
        """Resources of the workers here; each host has one, known once the host is."""
        devices = 0 if self.accelerator == "none" else 1
        if self.in_pods:
            return kubernetes_settings.workers(self.groups, devices)
        return () if self.on_hosts else node_settings.workers(self.groups, self._host, devices)

    @property
    def ssh_key_file(self) -> Path | None:
        """The private key; None without one."""
        return Path(self.key_file) if self.key_file else None

    @property
    def data_dir(self) -> Path:
        """Folder of data that outlives the stack."""
        # On hosts the same wherever the stack is brought up: ~ is that of the host's user.
        default = HOST_DATA / self._stack if self.on_hosts else local.data_folder(self._stack)
        return Path(self.data_folder) if self.data_folder else default

    @property
    def state_dir(self) -> Path:
        """Folder of data that does not."""
        folder = local.host_folder if self.on_hosts else local.runtime_folder
        return Path(self.state_folder) if self.state_folder else folder(self._stack)

    @property
    def names_of_containers(self) -> str:
        """What the names of containers, of their network and of volumes begin with."""
        part = local.owner_part(self.owner)
        return self.container_prefix or (f"{part}-" if part else "")

    @property
    def names_of_objects(self) -> str:
        """What the names of objects on Kubernetes begin with: the stack, for they need a letter."""
        return "-".join(filter(None, (self._stack, local.owner_part(self.owner))))

    def opened(self, running: Iterable[Descriptor]) -> list[Port]:
        """Return every fixed port of services; of containers, users see the published ones only."""
        nodes = 1 + (self.on_hosts or len(self.workers))
        wakes = self.growing and self.fleet and self.fleet.group_sizes is not None
        return [
            Port(number=number, setting=port.key, published=port.published)
            for service in running
            for port in service.ports
            if wakes or not port.waking
            for number in range(
                self.ports[port.key], self.ports[port.key] + (nodes if port.each_node else 1)
            )
        ]

    @check()
    def _fleet_faults(self) -> Iterator[Fault]:
        for (name, fleet), (other, _) in itertools.pairwise(self.fleets.items()):
            bound = f"and {other} are two places for one stack"
            yield Fault(name, bound, "remove one of them", f"{fleet.count} hosts")
        if self.fleet:
            yield from self.fleet.faults()

    @check("runtime", *PLACES)
    def _runtime_faults(self) -> Iterator[Fault]:
        chosen = self.asked_runtime
        if chosen == "auto" and all(self.of_runtimes.values()):
            names = [
                f"{' and '.join(keys)} for {each} only" for each, keys in self.of_runtimes.items()
            ]
            bound = f"no runtime can do it all: {', '.join(names)}"
            yield Fault("runtime", bound, "remove the settings of one of them")
        for runtime, keys in self.of_runtimes.items() if chosen != "auto" else ():
            for key in keys:
                if chosen not in (runtime, *self.limited.get(key, PROCESSES).runtimes):
                    bound = f"is for runtime {runtime} only, and runtime = {chosen!r}"
                    yield Fault(key, bound, f"remove {key}, or set runtime to {runtime}", NAMES)
        for key, only in self.limited.items() if self.in_pods else ():
            if {"docker", "process"} == {*only.runtimes}:
                bound = f"is for runtimes docker and process, and runtime = {chosen!r}"
                yield Fault(key, bound, f"remove {key}", NAMES)

    @check(*PLACES)
    def _group_faults(self) -> Iterator[Fault]:
        key = node_settings.GROUPS
        if not self.node_groups:
            return
        alike = f"is for workers that are alike, and {key} is set"
        if self.worker_count != 2:
            yield Fault("workers", alike, f"remove workers, or {key}")
        if self.worker_node.model_fields_set:
            yield Fault("worker", alike, f"remove worker, or {key}")
        sizes = self.fleet.group_sizes if self.fleet else None
        yield from node_settings.faults(self.node_groups, sizes)
        if self.asked_runtime == "docker" and self.growing:
            bound = "grows only where nodes are processes, and runtime = 'docker'"
            action = "set count in place of min and max, or runtime to process"
            yield Fault(key, bound, action, "a group with max")

    @check("runtime", *PLACES)
    def _volume_faults(self) -> Iterator[Fault]:
        data, here = self.dataset, not (self.on_hosts or self.in_pods)
        yield from volume_settings.faults(self.volumes, self.runtime, here=here)
        named = self.own_data if data and "volume" in data.model_fields_set else ""
        if named and (self.in_pods or self.asked_runtime == "process"):
            bound = f"is none of volumes: a Docker volume, and runtime = {self.asked_runtime!r}"
            yield Fault("dataset.volume", bound, "name one of volumes, or remove it", named)
        if data and self.on_hosts and self.runtime != "docker":
            bound = "fills a folder of this machine, and the nodes are on others"
            action = "remove dataset, and have setupCommands put the images there"
            yield Fault("dataset", bound, action, NAMES)

    @check("notebook", "runtime", *PLACES)
    def _notebook_faults(self) -> Iterator[Fault]:
        if self.of_services["notebook"] and self.on_hosts and self.runtime != "docker":
            bound = "runs in containers, in pods, or on this machine, and the nodes are on others"
            action = "remove it, and use a Jupyter where you are: `trainyard.run` finds the stack"
            yield Fault("notebook", bound, action)

    @check("allowedCidrs", "publishAddress", "runtime", *PLACES)
    def _cidr_faults(self) -> Iterator[Fault]:
        if self.allowed_cidrs and self.on_hosts and not self.renting and self.runtime == "docker":
            bound = "opens ports of this machine, and the containers are on hosts"
            yield Fault("allowedCidrs", bound, "remove it: users come through SSH", NAMES)
            return
        yield from container_settings.cidr_faults(
            self.allowed_cidrs, self.publish_address, self.renting
        )

    @check("accelerator", "runtime", "head", "worker", node_settings.GROUPS)
    def _gpu_faults(self) -> Iterator[Fault]:
        asked, nodes = self.accelerator, (self.head_node, self.groups)
        if asked == "none" and self.in_pods:
            yield from kubernetes_settings.gpu_faults(*nodes)
        elif asked != "none" and not self.in_pods:
            yield from node_settings.accelerator_faults(asked, *nodes)

    @check(*PLACES)
    def _machine_faults(self) -> Iterator[Fault]:
        if not self.on_hosts:
            asking = " nor ".join(source.setting for source in sources.SOURCES)
            bound = f"is for other machines only, and neither {asking} is set"
            for key in (key for key, only in self.limited.items() if only.machines):
                yield Fault(key, bound, f"remove {key}, or set one of them")
        if self.environment_file and self.python_environment:
            bound = "makes an environment, and pythonEnvironment names one that is there"
            yield Fault("environmentFile", bound, "remove one of them")

    @check(node_settings.GROUPS)
    def _placed_faults(self) -> Iterator[Fault]:
        if not self.fleet:
            return
        named, machines = self.growing or self.node_groups, self.on_hosts
        yield from self.fleet.group_faults(self.groups if named else ())
        if not named and self.worker_count not in (2, machines):
            bound = f"each of the {machines} hosts has one worker"
            yield Fault("workers", bound, "remove workers")
        if self.asked_store == tools.DIRECTORY and machines > 1:
            bound = f"the other {machines - 1} machine(s) cannot read this folder"
            yield Fault("objectStore", bound, "set objectStore to another")
        if not self.start_ray:
            yield from self.fleet.launcher_faults()
            if named:
                bound = "gives all nodes the same, and nodeGroups is set"
                yield Fault("startRay", bound, "remove nodeGroups, or set startRay to true")

    @check("runtime")
    def _container_faults(self) -> Iterator[Fault]:
        if not self.fleet or self.runtime != "docker":
            return
        name = [*self.fleets][-1]
        if self.on_hosts > 1:
            bound = "of several machines have no network in common, and runtime = 'docker' runs "
            action = "leave one machine, or set runtime to process"
            yield Fault(name, f"{bound}containers", action, f"{self.on_hosts} machines")
        for key in OF_PROCESSES & self.limited.keys():
            bound = f"is for processes on {name}, and runtime = 'docker'"
            yield Fault(key, bound, f"remove {key}, or set runtime to process", NAMES)
        if self.publish_address:
            bound = f"is an address of this machine, and the containers are on {name}"
            yield Fault("publishAddress", bound, "remove it: users come through SSH")
        if self.accelerator == "amd":
            bound = f"must be none or nvidia with {name} and runtime = 'docker'"
            yield Fault("accelerator", bound, "set runtime to process")
        if self.dataset and self.dataset.archive:
            bound = f"is a file of this machine, and the containers are on {name}"
            yield Fault("dataset.archive", bound, "set dataset.url")

    @check()
    def _store_faults(self) -> Iterator[Fault]:
        key = "storeFrom"
        if self.store_from == self._stack:
            yield Fault(key, "is this stack", "name another one, or remove storeFrom")
        if self.store_from and self.on_hosts:
            bound = "is a store of this machine, and the nodes are on others"
            yield Fault(key, bound, "remove storeFrom")
        if self.store_from and self.asked_store != tools.AUTO:
            bound = f"and objectStore = {self.asked_store!r} are two stores for one stack"
            yield Fault(key, bound, "remove one of them")

    @check("runtime", "kubernetes")
    def _kubernetes_faults(self) -> Iterator[Fault]:
        where, chosen, limits = self.kubernetes, self.asked_runtime, self.container_limits
        if self.in_pods:
            yield from kubernetes_settings.faults(
                where, self._stack, self.names_of_objects, self.dataset, self.own_data, limits
            )
            if where:
                yield from kubernetes_settings.image_and_store_faults(
                    where, self.asked_store, self.named_images, self.programs, self.accelerator
                )
                jobs = bool(self.of_services["queue"])
                yield from kubernetes_settings.queue_faults(where, self.growing, jobs=jobs)
        else:
            yield from kubernetes_settings.elsewhere_faults(where, self.node_groups, chosen)

    @check("images", "objectStore", *OF_SERVICES)
    def _pod_image_faults(self) -> Iterator[Fault]:
        if self.in_pods:
            yield from kubernetes_settings.image_faults(
                self.images, self.programs, self.store_of_pods
            )

    @check("dataDir", "stateDir", "runtime", *PLACES)
    def _folder_faults(self) -> Iterator[Fault]:
        state, data = self.state_dir, self.data_dir
        text, used = str(data), self.runtime in ("auto", "process")
        if used and text.isprintable() and not IN_URL.fullmatch(text):
            bound = "is part of a URL: at most 255 letters a-z or A-Z, digits and /._~@+=,:-"
            action = "set dataDir to such a folder, or runtime to docker"
            yield Fault("dataDir", bound, action, text)
        # Folders of another machine are checked there.
        look = folders.is_reserved if self.on_hosts else folders.refusal
        reserved = False
        for key, folder in (("stateDir", state), ("dataDir", data)):
            if reason := look(folder):
                bound = f"{reason}, and destroy removes what {key} names"
                yield Fault(key, bound, folders.ADVICE, str(folder))
                reserved = True
        text = str(state)
        if not STATE_DIR.fullmatch(text):
            bound = "must hold letters, digits and . _ / - only"
            yield Fault("stateDir", bound, "choose such a path", text)
        if len(text.encode()) > STATE_DIR_LIMIT:
            bound = f"must be at most {STATE_DIR_LIMIT} bytes long, or Ray's sockets do not fit"
            yield Fault("stateDir", bound, "choose a shorter path, such as /var/tmp/ty", text)
        # A reserved folder is a fault already; it holds most others: a second says nothing.
        if not reserved and (state == data or state in data.parents or data in state.parents):
            bound = f"must not be, hold or be in dataDir ({data}): destroy removes all of it"
            yield Fault("stateDir", bound, "choose two separate folders", text)

    @check("dataDir", "stateDir")
    def _replica_faults(self) -> Iterator[Fault]:
        copy = self.of_services[replica.SETTING]
        for name, folder in (("dataDir", self.data_dir), ("stateDir", self.state_dir)):
            if copy and Path(copy.to).is_relative_to(folder):
                bound = f"is in {name} ({folder}), and is lost with it"
                action = "name a folder on another disk, or a bucket"
                yield Fault(f"{replica.SETTING}.to", bound, action)

    @check("reservation", *PLACES)
    def _idle_faults(self) -> Iterator[Fault]:
        key = idle_end.SETTING
        ends = self.reservation or (self.fleet and self.fleet.ends_itself)
        if self.of_services[key] and not (ends and self.start_ray):
            bound = "needs an end, and nodes that the stack starts"
            action = "set a reservation or lambdaCloud.ttlHours, without startRay: false; or remove"
            yield Fault(key, bound, f"{action} {key}")

    @check("reservation")
    def _end_faults(self) -> Iterator[Fault]:
        if self.fleet:
            yield from self.fleet.end_faults(reserved=self.reservation is not None)
        if self.reservation and self.reservation.before_end and self.in_pods:
            bound = "runs where the head does, which no timer in a pod may"
            yield Fault("reservation.beforeEnd", bound, "remove it")
        if self.reservation and not self.start_ray:
            bound = "ends no Ray that Ray's own launcher has started, and startRay = false"
            yield Fault("reservation", bound, "remove reservation, or startRay", NAMES)

    @check(OFFSET, "workers", node_settings.GROUPS, *PLACES, *services.PORTS)
    def _port_faults(self) -> Iterator[Fault]:
        offset = getattr(self, OFFSET)
        if (highest := max(self.ports.values())) > LAST_PORT:
            bound = f"moves a port to {highest}, past {LAST_PORT}"
            yield Fault(OFFSET, bound, f"set it to {offset - highest + LAST_PORT} at most")
            return
        used: dict[int, str] = {}
        for key, port in self.ports.items():
            if key == "agentPort":
                continue
            if port in used:
                action = f"set {key} or {used[port]} to another port"
                yield Fault(key, f"must differ from {used[port]}", action)
            used.setdefault(port, key)
        first = self.ports["agentPort"]
        count = self.on_hosts or sum(group.count for group in self.groups)
        last = first + min(max(count, 1), MAX_WORKERS)
        if last > LAST_PORT:
            bound = f"one port for the head and each worker, up to {last}, must not pass "
            most = LAST_PORT - last + first - offset
            yield Fault("agentPort", f"{bound}{LAST_PORT}", f"set agentPort to {most}")
        for port, key in used.items():
            if first <= port <= last:
                bound = f"the agents' ports {first} to {last} must not hold {key} = {port}"
                yield Fault("agentPort", bound, f"set agentPort or {key} to another port")
        if self.in_pods:
            yield from kubernetes_settings.port_faults(self.ports)


# All settings of a stack, in the order of the list of settings.
FIELDS: dict[str, Any] = {
    **{each.setting: (each.declared, each.field) for each in sources.SOURCES},
    **{each.api_key: (str, setting("", each.api_key_text, secret=True)) for each in sources.CLOUDS},
    **OF_SERVICES,
    OFFSET: (
        Annotated[int, whole(0, LAST_PORT - FIRST_PORT)],
        setting(0, "Number added to all ports below, such as 100 for a second stack here"),
    ),
    **{
        key: (PORT, setting(each.default, each.description)) for key, each in services.PORTS.items()
    },
}
TREE = create_model("TREE", __base__=Settings, **FIELDS)


def read(host: LocalHost) -> Settings:
    """Read and check the settings of the stack; the machine's size fills in what is left out.

    Raises:
        pulumi.RunError: the settings have faults; the message lists all of them.
    """
    config = pulumi.Config()
    prefix, stack = f"{config.name}:", pulumi.get_stack()
    given = {**get_config_env(), **CONFIG.get()}
    raw = {key.removeprefix(prefix): str(v) for key, v in given.items() if key.startswith(prefix)}
    accounts = {cloud.api_key: cloud.title for cloud in sources.CLOUDS}
    for key in _secrets(raw):
        name, *field = key.split(".")
        if is_config_secret(prefix + name):
            continue
        advice = "can use it. Store"
        if key in accounts:  # only the providers that call the API read it
            advice = f"has the account. Make a new key at {accounts[key]}, and store"
        text = (
            f"{key} is in Pulumi.{stack}.yaml in the clear: anyone who has the file {advice} it "
            f"with `train config set --secret {'--path ' if field else ''}{key}`"
        )
        if key in accounts:
            raise pulumi.RunError(typed.commands(text, stack))
        pulumi.log.warn(typed.commands(text, stack))
    settings = parse(raw, host, stack)
    if settings.reservation:
        reservation.check(settings.reservation, stack, datetime.now(UTC))
    return settings


def _secrets(raw: Mapping[str, str]) -> Iterator[str]:
    """Yield the settings, and fields of objects, that hold a secret."""
    for key, declared in TREE.declared().items():
        if raw.get(key) and not declared.repr:
            yield key
        given = model.parsed(declared, raw.get(key, "{}"))
        for name, field in model.fields_of(declared).items():
            if isinstance(given, dict) and given.get(name) and not field.repr:
                yield f"{key}.{name}"


def parse(raw: Mapping[str, str], host: LocalHost, stack: str) -> Settings:
    """Check the text of each setting, objects as JSON; those that are left out have their defaults.

    Raises:
        pulumi.RunError: the settings have faults; the message lists all of them.
    """
    declared = TREE.declared()
    given = {
        key: model.parsed(declared[key], text) if key in declared else text
        for key, text in raw.items()
    }
    found: list[Fault] = []
    wrong: set[str] = set()
    try:
        settings = _made(given, host, stack)
    except ValidationError as error:
        found += model.faults_of(error)
        wrong = {re.split(r"[.\[]", fault.key)[0] for fault in found}
        right = {key: given[key] for key in declared.keys() & given.keys() - wrong}
        settings = _made(right, host, stack)
    for needs, find in CHECKS:
        if wrong.isdisjoint(needs):
            found.extend(find(settings))
    if found:
        count = f"{len(found)} fault{'s' if len(found) > 1 else ''}"
        lines = "\n".join(f"  - {fault.line({**raw, **given})}" for fault in found)
        text = (
            f"The settings of stack {stack} have {count} (Pulumi.{stack}.yaml; "
            f"docs/configuration.md explains each key):\n{lines}"
        )
        raise pulumi.RunError(typed.commands(text, stack))
    return settings


def _made(given: Mapping[str, Any], host: LocalHost, stack: str) -> Settings:
    return TREE.model_validate(given, by_alias=True, by_name=False, context=(host, stack))
