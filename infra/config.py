"""The stack's settings: the only reader of pulumi.Config.

Defaults are in Pulumi.yaml's schema, and only there. All faults are found before anything is made,
and reported in one message.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret

from cluster import grafana, idle_end, object_store, replica, secret, services
from cluster.descriptor import Descriptor, Text
from cluster.ray_node import NodeResources
from cluster.service import NAME_LIMIT, Port
from infra import (
    container_limits,
    container_settings,
    host_settings,
    images,
    kubernetes_settings,
    node_settings,
    replica_settings,
    tools,
    versions,
)
from infra.hosts import local, sources
from infra.hosts.fleet import FleetSettings
from infra.hosts.local import LocalHost
from infra.kubernetes_settings import Kubernetes
from infra.node_settings import NodeGroup
from infra.reader import Reader
from infra.runtimes import folders
from trainyard.access import typed

FIRST_PORT, LAST_PORT = 1024, 65535  # Ray refuses ports below
MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 5, 3600
MAX_ROTATIONS = 1_000_000
MIN_CONNECTIONS, MAX_CONNECTIONS = 10, 10_000
RUNTIMES = ("auto", "docker", "process", kubernetes_settings.KEY)
ACCELERATORS = ("none", "nvidia", "amd")
OBJECT_STORES = (tools.AUTO, *object_store.STORES, tools.DIRECTORY)
# Ray's longest sockets leave this many of the 107 bytes that a Unix socket's path may have:
# /ray-worker-63/ray/session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store
STATE_DIR_LIMIT = 25
STATE_DIR = re.compile(r"/[A-Za-z0-9._/-]+")  # other characters mean something to supervisord
BUCKET = re.compile(r"(?!xn--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
# A container's name is a host name on the stack's network, whose parts end at 63 characters.
PREFIX_LIMIT = 63 - NAME_LIMIT
PREFIX = re.compile(rf"(?:[A-Za-z0-9][A-Za-z0-9_.-]{{0,{PREFIX_LIMIT - 1}}})?")
# Settings that mean something to one runtime only, and the text that means unset.
STORE_FROM = "storeFrom"
STACK_NAME = re.compile(r"|[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
ONLY_FOR = {
    "docker": {
        "accelerator": "none",
        "containerPrefix": "",
        "images": "{}",
        "buildArgs": "{}",
        "imagePython": versions.IMAGE_PYTHON,
        "requireDigests": "false",
        "containerLimits": "{}",
        "connectionsPerAddress": "100",
        "allowedCidrs": "[]",
        "publishAddress": "",
        "grafanaAnonymousViewer": "false",
    },
    "process": {
        "dataDir": "",
        "stateDir": "",
        replica.TO: "",
        STORE_FROM: "",
        **{source.setting: source.nothing for source in sources.SOURCES},
    },
}
# Settings among them that mean something on Kubernetes too.
ON_KUBERNETES = {"accelerator", "images", "imagePython", "requireDigests", "containerLimits"}
ON_KUBERNETES.add("grafanaAnonymousViewer")
# Settings of other machines only, and the value of each that means unset.
ONLY_FOR_HOSTS = {
    "sshKeyFile": "",
    "setupCommands": "[]",
    "pythonEnvironment": "",
    "startRay": "true",
    "owner": "",
}
HOST_DATA = Path("~/.local/share/trainyard")  # of data that outlives a stack, on hosts
# The results of a stack without an object store are at file://<dataDir>/storage.
IN_URL = re.compile(r"[A-Za-z0-9/._~@+=,:-]{1,255}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a stack, complete and checked; names and units are those of Pulumi.yaml.

    Attributes, where they say more than the key does:
        runtime: "auto" only if both runtimes can fulfil the other settings.
        images: reference of each program's image that is not built here.
        container_limits: bounds that are set, by service and field.
        dataset: None without one.
        kubernetes: place of the stack in a cluster; None without one.
        allowed_cidrs: IPv4 networks; on this machine publish_address is set if there are any.
        workers: of this machine; on hosts each host has one, known once the host is.
        worker: fields that are set for workers.
        groups: the same for each group of nodes, by its name.
        growing: the groups among them that grow.
        on_hosts: how many other machines the stack is on at most, 0 for this one.
        fleet: source of the stack's machines; None for this one alone.
        of_services: values of the settings that services' descriptors name.
        ports: numbers by setting.
        ssh_key_file: None without one.
    """

    runtime: str
    accelerator: str
    container_prefix: str
    images: Mapping[str, str]
    build_args: Mapping[str, str]
    image_python: str
    require_digests: bool
    container_limits: Mapping[str, Mapping[str, int]]
    connections_per_address: int
    dataset: container_settings.Dataset | None
    kubernetes: Kubernetes | None
    allowed_cidrs: tuple[str, ...]
    publish_address: str
    rotated: Mapping[str, int]
    of_services: Mapping[str, Any]
    head: NodeResources
    workers: tuple[NodeResources, ...]
    worker: Mapping[str, Any]
    groups: Mapping[str, Mapping[str, Any]]
    growing: tuple[NodeGroup, ...]
    on_hosts: int
    fleet: FleetSettings | None
    owner: str
    ssh_key_file: Path | None
    setup_commands: tuple[str, ...]
    python_environment: str
    start_ray: bool
    object_store: str
    store_from: str
    bucket: str
    data_dir: Path
    keep_data: bool
    state_dir: Path
    start_timeout_seconds: int
    drain_seconds: int
    ports: Mapping[str, int]

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


def read(host: LocalHost) -> Settings:
    """Read and check the settings of the stack.

    Args:
        host: machine whose size fills in settings that are left out.

    Raises:
        pulumi.RunError: the settings have faults; the message lists all of them.
    """
    config = pulumi.Config()
    prefix, stack = f"{config.name}:", pulumi.get_stack()
    given = {**get_config_env(), **CONFIG.get()}
    raw = {key.removeprefix(prefix): str(v) for key, v in given.items() if key.startswith(prefix)}
    for cloud in sources.CLOUDS:
        # Only the providers that call the API read it.
        key = cloud.api_key
        if raw.get(key) and not is_config_secret(prefix + key):
            text = (
                f"{key} is in Pulumi.{stack}.yaml in the clear: anyone who has the file "
                f"has the account. Make a new key at {cloud.title}, and store it with "
                f"`python -m engine config set --secret {key}`"
            )
            raise pulumi.RunError(typed.commands(text, stack))
    for key, kind in _of_services(Text).items():
        if kind.secret and raw.get(key) and not is_config_secret(prefix + key):
            text = (
                f"{key} is in Pulumi.{stack}.yaml in the clear: anyone who has the file "
                f"can use it. Store it with `python -m engine config set --secret {key}`"
            )
            pulumi.log.warn(typed.commands(text, stack))
    return parse(raw, host, stack)


def parse(raw: Mapping[str, str], host: LocalHost, stack: str) -> Settings:
    """Check raw settings and fill in the defaults that depend on the machine.

    Args:
        raw: text of each setting, objects as JSON.
        host: the machine.
        stack: name of the stack.

    Raises:
        pulumi.RunError: the settings have faults; the message lists all of them.
    """
    reader = Reader(raw)
    head, worker = node_settings.node(reader, "head"), node_settings.node(reader, "worker")
    fleet = _fleet(reader)
    groups = node_settings.groups(reader, worker, fleet.group_sizes if fleet else None)
    count = sum(group.count for group in groups)
    values: dict[str, Any] = {
        "accelerator": reader.choice("accelerator", ACCELERATORS),
        "container_prefix": reader.matching(
            "containerPrefix",
            PREFIX,
            f"must be at most {PREFIX_LIMIT} letters, digits and . _ - after a letter or digit",
            "set containerPrefix to such a text, such as lab-",
        ),
        "images": container_settings.images(reader),
        "build_args": container_settings.build_args(reader),
        "image_python": reader.choice("imagePython", versions.IMAGE_PYTHONS),
        "container_limits": container_limits.read(reader),
        "connections_per_address": reader.integer(
            "connectionsPerAddress", MIN_CONNECTIONS, MAX_CONNECTIONS
        ),
        "dataset": container_settings.dataset(reader),
        "kubernetes": kubernetes_settings.read(reader),
        "allowed_cidrs": container_settings.allowed_cidrs(reader),
        "publish_address": container_settings.publish_address(reader),
        "of_services": {
            key: _value(reader, key, kind)
            for service in services.ALL
            for key, kind in service.settings.items()
        },
        "rotated": _rotated(reader),
        "fleet": fleet,
        "owner": reader.text("owner"),
        "ssh_key_file": host_settings.ssh_key_file(reader),
        "setup_commands": host_settings.setup_commands(reader),
        "python_environment": host_settings.python_environment(reader),
        "start_ray": reader.boolean("startRay"),
        "object_store": reader.choice("objectStore", OBJECT_STORES),
        "store_from": reader.matching(
            STORE_FROM, STACK_NAME, "must be the name of a stack", "name another stack"
        ),
        "bucket": reader.matching(
            "bucket",
            BUCKET,
            "must be 3 to 63 lowercase letters, digits and hyphens, no hyphen at either end",
            "set bucket to such a name",
        ),
        "keep_data": reader.boolean("keepData"),
        "worker": worker,
        "groups": {group.name: group.fields for group in groups if group.name},
        "growing": tuple(group for group in groups if group.growth),
        "start_timeout_seconds": reader.integer(
            "startTimeoutSeconds", MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS
        ),
        "drain_seconds": reader.integer("drainSeconds", 0, MAX_TIMEOUT_SECONDS),
    }
    values["runtime"] = _runtime(reader, grows=any(group.growth for group in groups))
    machines = values["on_hosts"] = values["fleet"].most(groups) if values["fleet"] else 0
    data, state = local.data_folder(stack), local.runtime_folder(stack)
    if machines:
        # The same wherever the stack is brought up: ~ is that of the host's user.
        data, state = HOST_DATA / stack, local.host_folder(stack)
    values["data_dir"] = reader.folder("dataDir", data)
    text, used = str(values["data_dir"]), values["runtime"] in ("auto", "process")
    if used and text.isprintable() and not IN_URL.fullmatch(text):
        reader.fault(
            "dataDir",
            text,
            "is part of a URL: at most 255 letters a-z or A-Z, digits and /._~@+=,:-",
            "set dataDir to such a folder, or runtime to docker",
        )
    values["state_dir"] = reader.folder("stateDir", state)
    ports = {key: reader.integer(key, FIRST_PORT, LAST_PORT) for key in services.PORTS}
    of_services = values["of_services"]
    if of_services[grafana.ANONYMOUS] and not of_services["grafana"]:
        bound = "does nothing with grafana = 'false'"
        reader.fault(grafana.ANONYMOUS, "true", bound, "set it to false, or grafana to true")
    on_kubernetes = values["runtime"] == kubernetes_settings.KEY
    if values["accelerator"] in ACCELERATORS[1:] and not on_kubernetes:
        node_settings.check_accelerator(reader, values["accelerator"], head, groups)
    values["require_digests"] = container_settings.require_digests(
        reader, values["images"], values["build_args"], _programs(values)
    )
    _check_hosts(reader, values, machines, groups)
    if values["store_from"]:
        _check_store_from(reader, values["store_from"], stack, machines)
        values["object_store"] = tools.DIRECTORY  # it has none of its own
    kubernetes_settings.check(
        reader,
        values,
        stack,
        _programs(values),
        nodes={"head": head, **{group.key: group.fields for group in groups}},
        ports=ports,
    )
    _check_folders(reader, values["state_dir"], values["data_dir"], elsewhere=machines > 0)
    replica_settings.check(reader, values["data_dir"], values["state_dir"])
    _check_idle_end(reader, values["fleet"])
    _check_ports(reader, ports, machines or count)
    keys = sorted(_keys())
    for key in sorted(set(raw) - set(keys)):
        reader.unknown(key, raw[key], key, keys)
    if reader.faults:
        count_text = f"{len(reader.faults)} fault{'s' if len(reader.faults) > 1 else ''}"
        lines = "\n".join(f"  - {fault}" for fault in reader.faults)
        text = (
            f"The settings of stack {stack} have {count_text} (Pulumi.{stack}.yaml; "
            f"docs/configuration.md explains each key):\n{lines}"
        )
        raise pulumi.RunError(typed.commands(text, stack))
    devices = 0 if values["accelerator"] == "none" else 1
    if on_kubernetes:
        workers = kubernetes_settings.workers(groups, devices)
    else:
        workers = () if machines else node_settings.workers(groups, host, devices)
    return Settings(
        head=node_settings.head(head),
        workers=workers,
        ports=ports,
        **values,
    )


def _value(reader: Reader, key: str, kind: type[bool] | tuple[str, ...] | Text) -> bool | str:
    if isinstance(kind, Text):
        pattern = re.compile(kind.pattern)
        return reader.matching(key, pattern, kind.bound, kind.action, shown=not kind.secret)
    return reader.choice(key, kind) if isinstance(kind, tuple) else reader.boolean(key)


def _programs(values: Mapping[str, Any]) -> set[str]:
    """Return the programs that run as containers, by the settings."""
    settings: Any = SimpleNamespace(**values)
    return {each.program for each in images.IN_CONTAINERS if each.wanted(settings)}


def _of_services(kind: type) -> dict[str, Any]:
    """Return the settings of services that are of a kind."""
    return {
        key: value
        for service in services.ALL
        for key, value in service.settings.items()
        if isinstance(value, kind)
    }


def _keys() -> set[str]:
    """Return the keys of all settings."""
    derived = {"fleet", "groups", "growing", "ofServices", "onHosts", "ports"}
    own = {_camel(field.name) for field in fields(Settings)} - derived
    own.add(node_settings.GROUPS)
    return own | {*_of_services(object)} | sources.KEYS | services.PORTS.keys()


def _runtime(reader: Reader, *, grows: bool) -> str:
    """Return the runtime; for "auto" the one that other settings need, if any does.

    Args:
        reader: of the settings.
        grows: whether a group of nodes grows.
    """
    chosen = reader.choice("runtime", RUNTIMES)
    given = {
        runtime: [key for key, text in neutral.items() if reader.raw.get(key, text).strip() != text]
        for runtime, neutral in ONLY_FOR.items()
    }
    if reader.raw.get("objectStore") == "directory":
        given["process"].append("objectStore")
    if chosen == "auto" and grows:
        given["process"].append(node_settings.GROUPS)
    elif chosen == "docker" and grows:
        bound = "grows only where nodes are processes, and runtime = 'docker'"
        action = "set count in place of min and max, or runtime to process"
        reader.fault(node_settings.GROUPS, "a group with max", bound, action)
    if chosen == "auto" and "volume" in reader.fields("dataset"):
        given["docker"].append("dataset.volume")
    if sources.renting(reader) and "allowedCidrs" in given["docker"]:
        given["docker"].remove("allowedCidrs")  # there it is a setting of the firewall
    if chosen == "auto" and given["docker"] and given["process"]:
        names = [f"{' and '.join(keys)} for {runtime} only" for runtime, keys in given.items()]
        bound = f"no runtime can do it all: {', '.join(names)}"
        reader.fault("runtime", chosen, bound, "remove the settings of one of them")
    if chosen == kubernetes_settings.KEY:
        given = {name: [k for k in keys if k not in ON_KUBERNETES] for name, keys in given.items()}
    named = chosen in (*ONLY_FOR, kubernetes_settings.KEY)
    for runtime, keys in given.items():
        if chosen == "auto" and keys:
            return runtime
        for key in keys if named and chosen != runtime else ():
            # A setting's fields may be secrets by mistake, and their names tell enough.
            value = reader.fields(key) or reader.raw[key]
            bound = f"is for runtime {runtime} only, and runtime = {chosen!r}"
            reader.fault(key, value, bound, f"remove {key}, or set runtime to {runtime}")
    return chosen


def _rotated(reader: Reader) -> dict[str, int]:
    """Return how often each secret was rotated."""
    action = "remove it: `make rotate` writes it"
    found = reader.object("rotated", action)
    for name, times in found.items():
        if name not in secret.ROTATABLE:
            reader.unknown(f"rotated.{name}", times, name, secret.ROTATABLE)
        elif type(times) is not int or not 1 <= times <= MAX_ROTATIONS:
            bound = f"must be a whole number from 1 to {MAX_ROTATIONS}"
            reader.fault(f"rotated.{name}", times, bound, action)
    return {name: times for name, times in found.items() if type(times) is int}


def _fleet(reader: Reader) -> FleetSettings | None:
    """Return the source of the stack's machines, None for this one alone."""
    asked = [(source.setting, source.read(reader)) for source in sources.SOURCES]
    found = [(setting, fleet) for setting, fleet in asked if fleet]
    for (setting, fleet), (other, _) in itertools.pairwise(found):
        bound = f"and {other} are two places for one stack"
        reader.fault(setting, f"{fleet.count} hosts", bound, "remove one of them")
    return found[-1][1] if found else None


def _check_hosts(
    reader: Reader, values: Mapping[str, Any], machines: int, groups: Sequence[NodeGroup]
) -> None:
    """Check settings that conflict with other machines, or need them."""
    if not machines:
        for key, text in ONLY_FOR_HOSTS.items():
            if reader.raw.get(key, text).strip() != text:
                asking = " nor ".join(source.setting for source in sources.SOURCES)
                bound = f"is for other machines only, and neither {asking} is set"
                reader.fault(key, reader.raw[key], bound, f"remove {key}, or set one of them")
        return
    names = [group.name for group in groups if group.name]
    values["fleet"].check_groups(reader, groups if names else ())
    if not names and reader.raw.get("workers", "2") != "2" and groups[0].count != machines:
        bound = f"each of the {machines} hosts has one worker"
        reader.fault("workers", groups[0].count, bound, "remove workers")
    if names and not values["start_ray"]:
        bound = "gives all nodes the same, and nodeGroups is set"
        reader.fault("startRay", "false", bound, "remove nodeGroups, or set startRay to true")
    if reader.raw.get("objectStore") == "directory" and machines > 1:
        bound = f"the other {machines - 1} machine(s) cannot read this folder"
        reader.fault("objectStore", "directory", bound, "set objectStore to another")
    if values["dataset"]:
        bound = "fills a folder of this machine, and the nodes are on others"
        action = "remove dataset, and have setupCommands put the images there"
        reader.fault("dataset", reader.fields("dataset"), bound, action)
    if values["owner"] and not sources.renting(reader):
        reader.fault("owner", values["owner"], "is a tag of rented machines", "remove owner")
    if not values["start_ray"]:
        values["fleet"].check_launcher(reader)


def _check_store_from(reader: Reader, name: str, stack: str, machines: int) -> None:
    if name == stack:
        reader.fault(STORE_FROM, name, "is this stack", "name another one, or remove storeFrom")
    if machines:
        bound = "is a store of this machine, and the nodes are on others"
        reader.fault(STORE_FROM, name, bound, "remove storeFrom")
    if reader.raw.get("objectStore", tools.AUTO) != tools.AUTO:
        bound = f"and objectStore = {reader.raw['objectStore']!r} are two stores for one stack"
        reader.fault(STORE_FROM, name, bound, "remove one of them")


def _check_idle_end(reader: Reader, fleet: FleetSettings | None) -> None:
    """Note an end for idleness of machines that cannot end themselves."""
    minutes = reader.raw.get(idle_end.MINUTES, idle_end.NEVER).strip()
    whole = minutes.isdecimal() and minutes != idle_end.NEVER
    if whole and not (fleet and fleet.ends_itself):
        bound = "needs rented machines that end themselves: lambdaCloud with ttlHours"
        action = f"set lambdaCloud.ttlHours, or remove {idle_end.MINUTES}"
        reader.fault(idle_end.MINUTES, minutes, bound, action)
    for key, needs in (
        (idle_end.GPU_PERCENT, idle_end.CPU_PERCENT),
        (idle_end.CPU_PERCENT, idle_end.MINUTES),
    ):
        value, needed = (reader.raw.get(each, idle_end.NEVER).strip() for each in (key, needs))
        if value.isdecimal() and value != idle_end.NEVER and needed == idle_end.NEVER:
            reader.fault(key, value, f"does nothing without {needs}", f"set {needs} too")


def _check_folders(reader: Reader, state: Path, data: Path, *, elsewhere: bool) -> None:
    # Folders of another machine are checked there.
    look = folders.is_reserved if elsewhere else folders.refused
    reserved = False
    for key, folder in (("stateDir", state), ("dataDir", data)):
        # A path that is a fault already is not checked: with a zero byte that would raise.
        whole = ".." not in folder.parts and str(folder).isprintable()
        if whole and (reason := look(folder)):
            bound = f"{reason}, and destroy removes what {key} names"
            reader.fault(key, str(folder), bound, folders.ADVICE)
            reserved = True
    text = str(state)
    if not STATE_DIR.fullmatch(text):
        bound = "must hold letters, digits and . _ / - only"
        reader.fault("stateDir", text, bound, "choose such a path")
    if len(text.encode()) > STATE_DIR_LIMIT:
        bound = f"must be at most {STATE_DIR_LIMIT} bytes long, or Ray's sockets do not fit"
        reader.fault("stateDir", text, bound, "choose a shorter path, such as /var/tmp/ty")
    # A reserved folder is a fault already; it holds most others, so a second would say nothing.
    if not reserved and (state == data or state in data.parents or data in state.parents):
        bound = f"must not be, hold or be in dataDir ({data}): destroy removes all of it"
        reader.fault("stateDir", text, bound, "choose two separate folders")


def _check_ports(reader: Reader, ports: dict[str, int], workers: int) -> None:
    used: dict[int, str] = {}
    for key, port in ports.items():
        if key == "agentPort":
            continue
        if port in used:
            bound = f"must differ from {used[port]}"
            reader.fault(key, port, bound, f"set {key} or {used[port]} to another port")
        used.setdefault(port, key)
    first = ports["agentPort"]
    last = first + min(max(workers, 1), node_settings.MAX_WORKERS)
    if last > LAST_PORT:
        bound = f"one port for the head and each worker, up to {last}, must not pass {LAST_PORT}"
        reader.fault("agentPort", first, bound, f"set agentPort to {LAST_PORT - last + first}")
    for port, key in used.items():
        if first <= port <= last:
            bound = f"the agents' ports {first} to {last} must not hold {key} = {port}"
            reader.fault("agentPort", first, bound, f"set agentPort or {key} to another port")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
