"""The stack's settings: the only reader of pulumi.Config.

Defaults are those of Pulumi.yaml's schema, and only there. Every fault is found before anything is
made, and all of them are told in one message.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env

from cluster.ray_node import OBJECT_STORE_MIN_MIB, RESERVED_RESOURCES, NodeResources, RayPorts
from cluster.service import Port
from infra.hosts import local
from infra.hosts.local import LocalHost

MAX_WORKERS = 64
MAX_AMOUNT = 1_000_000  # of CPUs, GPUs or a custom resource
FIRST_PORT, LAST_PORT = 1024, 65535  # Ray refuses ports below
MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS = 5, 3600
OBJECT_STORES = ("auto", "minio", "directory")
# Ray's longest sockets leave this many of the 107 bytes that a Unix socket's path may have:
# /ray-worker-63/ray/session_<date>_<time>_<microseconds>_<pid>/sockets/plasma_store
STATE_DIR_LIMIT = 25
STATE_DIR = re.compile(r"/[A-Za-z0-9._/-]+")  # supervisord's file format gives others a meaning
BUCKET = re.compile(r"(?!xn--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
NODE_FIELDS = ("cpus", "gpus", "memoryMib", "objectStoreMib", "resources")

# What nodes get when the settings leave it out.
HEAD_MEMORY_MIB = 1024
HEAD_OBJECT_STORE_MIB = 128
WORKERS_MEMORY_SHARE = 0.6  # of the machine's memory, for all workers together
WORKERS_OBJECT_STORE_SHARE = 0.1
WORKER_OBJECT_STORE_MAX_MIB = 2048


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a stack, complete and checked; names and units are those of Pulumi.yaml."""

    head: NodeResources
    workers: tuple[NodeResources, ...]
    object_store: str
    bucket: str
    data_dir: Path
    keep_data: bool
    state_dir: Path
    start_timeout_seconds: int
    dashboard_port: int
    gcs_port: int
    ray_client_port: int
    agent_port: int
    autoscaler_metrics_port: int
    dashboard_metrics_port: int
    object_store_port: int
    object_store_console_port: int
    prometheus_port: int

    @property
    def ray_ports(self) -> RayPorts:
        """Ports of the Ray cluster."""
        return RayPorts(
            dashboard=self.dashboard_port,
            gcs=self.gcs_port,
            client=self.ray_client_port,
            agent=self.agent_port,
            autoscaler_metrics=self.autoscaler_metrics_port,
            dashboard_metrics=self.dashboard_metrics_port,
        )

    def ports(self, *, object_store: bool, prometheus: bool) -> list[Port]:
        """Return every fixed port that the stack opens."""
        keys = ["dashboardPort", "gcsPort", "rayClientPort"]
        keys += ["autoscalerMetricsPort", "dashboardMetricsPort"]
        keys += ["objectStorePort", "objectStoreConsolePort"] if object_store else []
        keys += ["prometheusPort"] if prometheus else []
        ports = [Port(number=getattr(self, _snake(key)), setting=key) for key in keys]
        agents = range(self.agent_port, self.agent_port + len(self.workers) + 1)
        return ports + [Port(number=number, setting="agentPort") for number in agents]


class _Reader:
    """Takes values out of the raw settings and notes what is wrong with them."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self.raw = raw
        self.faults: list[str] = []

    def fault(self, key: str, value: object, bound: str, action: str) -> None:
        shown = value if isinstance(value, str) else json.dumps(value)
        self.faults.append(f"{key} = {shown!r}: {bound}; {action}")

    def text(self, key: str) -> str:
        if key not in self.raw:
            self.faults.append(
                f"{key} is not set: the engine passes on the defaults of Pulumi.yaml; "
                f"run it in the project's folder, or set {key}"
            )
            return ""
        return self.raw[key]

    def integer(self, key: str, low: int, high: int) -> int:
        text = self.text(key)
        if key in self.raw and not (re.fullmatch(r"-?\d{1,18}", text) and low <= int(text) <= high):
            self.fault(
                key, text, f"must be a whole number from {low} to {high}", f"set {key} within it"
            )
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else low

    def boolean(self, key: str) -> bool:
        text = self.text(key)
        if key in self.raw and text not in ("true", "false"):
            self.fault(key, text, "must be true or false", f"set {key} to one of them")
        return text == "true"

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        text = self.text(key)
        if key in self.raw and text not in choices:
            bound = f"must be one of {', '.join(choices)}"
            self.fault(key, text, bound, f"set {key} to one of them")
        return text

    def folder(self, key: str, default: Path) -> Path:
        text = self.text(key)
        if not text:
            return default
        path = Path(text)
        if not path.is_absolute() or ".." in path.parts or not text.isprintable():
            self.fault(
                key, text, "must be an absolute path without '..'", "write the path from / on"
            )
        return path

    def node(self, key: str) -> dict[str, Any]:
        text = self.text(key)
        if key not in self.raw:
            return {}
        try:
            node = json.loads(text)
        except ValueError:
            node = None
        if not isinstance(node, dict):
            self.fault(
                key, text, "must be an object", f"write its fields: {', '.join(NODE_FIELDS)}"
            )
            return {}
        return {name: self._node_field(f"{key}.{name}", name, v) for name, v in node.items()}

    def _node_field(self, key: str, name: str, value: Any) -> Any:
        match name:
            case "cpus" | "gpus":
                self._amount(key, value)
            case "memoryMib":
                self._mib(key, value, 1)
            case "objectStoreMib":
                self._mib(key, value, OBJECT_STORE_MIN_MIB)
            case "resources" if isinstance(value, dict):
                for resource, amount in value.items():
                    if not resource or resource in RESERVED_RESOURCES:
                        taken = ", ".join(sorted(RESERVED_RESOURCES))
                        bound = f"must be a name other than {taken}"
                        self.fault(f"{key}.{resource}", amount, bound, "use the field of its own")
                    self._amount(f"{key}.{resource}", amount)
            case "resources":
                bound = "must be an object of amounts by name"
                self.fault(key, value, bound, "write it as {name: amount}")
            case _:
                self.fault(key, value, "no such field", _suggestion(name, NODE_FIELDS))
        return value

    def _amount(self, key: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(key, value, "must be a number", f"set {key} to a number")
        elif not 0 <= value <= MAX_AMOUNT:
            self.fault(key, value, f"must be from 0 to {MAX_AMOUNT}", f"set {key} within it")

    def _mib(self, key: str, value: Any, low: int) -> None:
        high = MAX_AMOUNT * 1024
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            bound = f"must be a whole number of MiB from {low} to {high}"
            self.fault(key, value, bound, f"set {key} within it")


def read(host: LocalHost) -> Settings:
    """Read and check the settings of the stack.

    Args:
        host: machine whose size fills in what the settings leave out.

    Raises:
        pulumi.RunError: the settings have faults; the message lists all of them.
    """
    config = pulumi.Config()
    prefix = f"{config.name}:"
    given = {**get_config_env(), **CONFIG.get()}
    raw = {key.removeprefix(prefix): str(v) for key, v in given.items() if key.startswith(prefix)}
    return parse(raw, host, pulumi.get_stack())


def parse(raw: Mapping[str, str], host: LocalHost, stack: str) -> Settings:
    """Check raw settings and fill in what they leave to the machine.

    Args:
        raw: text of each setting, objects as JSON.
        host: the machine.
        stack: name of the stack.

    Raises:
        pulumi.RunError: the settings have faults; the message lists all of them.
    """
    reader = _Reader(raw)
    count = reader.integer("workers", 1, MAX_WORKERS)
    head, worker = reader.node("head"), reader.node("worker")
    values: dict[str, Any] = {
        "object_store": reader.choice("objectStore", OBJECT_STORES),
        "bucket": reader.text("bucket"),
        "data_dir": reader.folder("dataDir", local.data_folder(stack)),
        "keep_data": reader.boolean("keepData"),
        "state_dir": reader.folder("stateDir", local.runtime_folder(stack)),
        "start_timeout_seconds": reader.integer(
            "startTimeoutSeconds", MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS
        ),
    }
    ports = {
        _camel(field.name): reader.integer(_camel(field.name), FIRST_PORT, LAST_PORT)
        for field in fields(Settings)
        if field.name.endswith("_port")
    }
    values |= {_snake(key): port for key, port in ports.items()}
    if "bucket" in raw and not BUCKET.fullmatch(values["bucket"]):
        bound = "must be 3 to 63 lowercase letters, digits and hyphens, no hyphen at either end"
        reader.fault("bucket", values["bucket"], bound, "set bucket to such a name")
    _check_folders(reader, values["state_dir"], values["data_dir"])
    _check_ports(reader, ports, count)
    for key in sorted(set(raw) - _keys()):
        reader.fault(key, raw[key], "no such setting", _suggestion(key, tuple(sorted(_keys()))))
    if reader.faults:
        count_text = f"{len(reader.faults)} fault{'s' if len(reader.faults) > 1 else ''}"
        lines = "\n".join(f"  - {fault}" for fault in reader.faults)
        raise pulumi.RunError(
            f"The settings of stack {stack} have {count_text} (Pulumi.{stack}.yaml; "
            f"docs/configuration.md explains each key):\n{lines}"
        )
    return Settings(
        head=_head(head),
        workers=tuple(_worker(worker, host, count) for _ in range(count)),
        **values,
    )


def _check_folders(reader: _Reader, state: Path, data: Path) -> None:
    text = str(state)
    if not STATE_DIR.fullmatch(text):
        bound = "must hold letters, digits and . _ / - only"
        reader.fault("stateDir", text, bound, "choose such a path")
    if len(text.encode()) > STATE_DIR_LIMIT:
        bound = f"must be at most {STATE_DIR_LIMIT} bytes long, or Ray's sockets do not fit"
        reader.fault("stateDir", text, bound, "choose a shorter path, such as /tmp/ty")
    if state == data or state in data.parents or data in state.parents:
        bound = f"must not be, hold or lie in dataDir ({data}): destroy removes all of it"
        reader.fault("stateDir", text, bound, "choose two separate folders")


def _check_ports(reader: _Reader, ports: dict[str, int], workers: int) -> None:
    used: dict[int, str] = {}
    for key, port in ports.items():
        if key == "agentPort":
            continue
        if port in used:
            bound = f"must differ from {used[port]}"
            reader.fault(key, port, bound, f"set {key} or {used[port]} to another port")
        used.setdefault(port, key)
    first = ports["agentPort"]
    last = first + min(max(workers, 1), MAX_WORKERS)
    if last > LAST_PORT:
        bound = f"one port for the head and each worker, up to {last}, must not pass {LAST_PORT}"
        reader.fault("agentPort", first, bound, f"set agentPort to {LAST_PORT - last + first}")
    for port, key in used.items():
        if first <= port <= last:
            bound = f"the agents' ports {first} to {last} must not hold {key} = {port}"
            reader.fault("agentPort", first, bound, f"set agentPort or {key} to another port")


def _head(node: dict[str, Any]) -> NodeResources:
    return NodeResources(
        cpus=node.get("cpus", 0),
        gpus=node.get("gpus", 0),
        memory_mib=node.get("memoryMib", HEAD_MEMORY_MIB),
        object_store_mib=node.get("objectStoreMib", HEAD_OBJECT_STORE_MIB),
        resources=node.get("resources", {}),
    )


def _worker(node: dict[str, Any], host: LocalHost, count: int) -> NodeResources:
    share = int(host.memory_mib * WORKERS_OBJECT_STORE_SHARE / count)
    return NodeResources(
        cpus=node.get("cpus", max(1, host.cpus // count)),
        gpus=node.get("gpus", 0),
        memory_mib=node.get(
            "memoryMib", max(1, int(host.memory_mib * WORKERS_MEMORY_SHARE / count))
        ),
        object_store_mib=node.get(
            "objectStoreMib", min(max(share, OBJECT_STORE_MIN_MIB), WORKER_OBJECT_STORE_MAX_MIB)
        ),
        resources=node.get("resources", {}),
    )


def _keys() -> set[str]:
    return {_camel(field.name) for field in fields(Settings)} | {"worker"}


def _suggestion(key: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"remove it, or use one of {', '.join(known)}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)
