"""Settings of Ray nodes: the head's, the workers', and groups of workers that differ.

Deliberately absent: any look at a machine, except the size of the given one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.ray_node import OBJECT_STORE_MIN_MIB, RESERVED_RESOURCES, Growth, NodeResources
from infra.hosts.local import LocalHost
from infra.reader import Reader

MAX_WORKERS = 64
MAX_AMOUNT = 1_000_000  # of CPUs, GPUs or a custom resource
FIELDS = ("cpus", "gpus", "memoryMib", "objectStoreMib", "resources")
ACTION = f"write its fields: {', '.join(FIELDS)}"
GROUPS = "nodeGroups"
RANGE = ("min", "max")
# Of pods only; infra/kubernetes_settings.py checks them.
POD_FIELDS = ("image", "nodeSelector", "tolerations")
GROUP_FIELDS = ("name", "count", *RANGE, "idleMinutes", *FIELDS, *POD_FIELDS)
IDLE_MINUTES = 5.0
MAX_IDLE_MINUTES = 24 * 60.0
GROUP_ACTION = f"write each group's fields: {', '.join(GROUP_FIELDS)}"
GROUP_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
# Settings of workers of one kind, and the text that means unset.
OF_ONE_KIND = {"workers": "2", "worker": "{}"}
# Defaults of nodes.
HEAD_MEMORY_MIB = 1024
HEAD_OBJECT_STORE_MIB = 128
WORKERS_MEMORY_SHARE = 0.6  # of the machine's memory, for all workers together
WORKERS_OBJECT_STORE_SHARE = 0.1
WORKER_OBJECT_STORE_MAX_MIB = 2048


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Workers that are alike.

    Attributes:
        name: of the group, "" where all workers are alike.
        count: how many, at most.
        fields: settings of each, by field.
        growth: the least number, and the idle time; None if all are always there.
    """

    name: str
    count: int
    fields: Mapping[str, Any]
    growth: Growth | None = None

    @property
    def key(self) -> str:
        """The name of its fields in faults."""
        return f"{GROUPS}.{self.name}" if self.name else "worker"


def head(fields: Mapping[str, Any]) -> NodeResources:
    """Return the resources of the head: the settings, and little else."""
    return NodeResources(
        cpus=fields.get("cpus", 0),
        gpus=fields.get("gpus", 0),
        memory_mib=fields.get("memoryMib", HEAD_MEMORY_MIB),
        object_store_mib=fields.get("objectStoreMib", HEAD_OBJECT_STORE_MIB),
        resources=fields.get("resources", {}),
    )


def workers(
    groups: Sequence[NodeGroup], host: LocalHost, devices: int
) -> tuple[NodeResources, ...]:
    """Return the resources of each worker of this machine, group by group."""
    total = sum(group.count for group in groups)
    return tuple(
        replace(_worker(group.name, group.fields, host, total, devices), growth=group.growth)
        for group in groups
        for _ in range(group.count)
    )


def worker_on(
    group: str, fields: Mapping[str, Any], cpus: int, memory_mib: int, gpus: int
) -> NodeResources:
    """Return the resources of a host's only worker: the settings, else those of the host."""
    return _worker(group, fields, LocalHost(cpus=cpus, memory_mib=memory_mib), 1, gpus)


def _worker(
    group: str, fields: Mapping[str, Any], host: LocalHost, total: int, devices: int
) -> NodeResources:
    share = int(host.memory_mib * WORKERS_OBJECT_STORE_SHARE / total)
    cpus = max(1, host.cpus // total)
    return NodeResources(
        group=group,
        cpus=fields.get("cpus", cpus),
        gpus=fields.get("gpus", devices),
        memory_mib=fields.get(
            "memoryMib", max(1, int(host.memory_mib * WORKERS_MEMORY_SHARE / total))
        ),
        object_store_mib=fields.get(
            "objectStoreMib", min(max(share, OBJECT_STORE_MIN_MIB), WORKER_OBJECT_STORE_MAX_MIB)
        ),
        resources=fields.get("resources", {}),
        threads=cpus if fields.get("cpus", cpus) > cpus else None,
    )


def node(reader: Reader, key: str) -> dict[str, Any]:
    """Return the fields of `head` or `worker`."""
    fields = reader.object(key, ACTION)
    for name, value in fields.items():
        _check_field(reader, f"{key}.{name}", name, value)
    return fields


def groups(
    reader: Reader, worker: Mapping[str, Any], hosts: Mapping[str, int] | None
) -> tuple[NodeGroup, ...]:
    """Return the groups of workers; one without a name where no groups are set.

    Args:
        reader: of the settings.
        worker: fields of the setting `worker`.
        hosts: how many hosts name each group; None where groups have sizes of their own.
    """
    count = reader.integer("workers", 1, MAX_WORKERS)
    given = reader.array(GROUPS, GROUP_ACTION)
    if not given:
        return (NodeGroup(name="", count=count, fields=worker),)
    for key, text in OF_ONE_KIND.items():
        if reader.raw.get(key, text).strip() != text:
            bound = f"is for workers that are alike, and {GROUPS} is set"
            reader.fault(key, reader.raw[key], bound, f"remove {key}, or {GROUPS}")
    found: dict[str, NodeGroup] = {}
    for index, value in enumerate(given):
        group = _group(reader, f"{GROUPS}[{index}]", value, hosts)
        if group and group.name in found:
            bound = "is the name of two groups"
            reader.fault(f"{GROUPS}[{index}].name", group.name, bound, "give one another name")
        if group:
            found[group.name] = group
    total = sum(group.count for group in found.values())
    if total > MAX_WORKERS:
        bound = f"must have {MAX_WORKERS} workers at most in all"
        reader.fault(GROUPS, f"{total} workers", bound, "lower count")
    return tuple(found.values())


def _group(
    reader: Reader, key: str, value: Any, hosts: Mapping[str, int] | None
) -> NodeGroup | None:
    if not isinstance(value, dict):
        reader.fault(key, value, "must be an object", GROUP_ACTION)
        return None
    own = ("name", "count", *RANGE, "idleMinutes")
    fields = {name: each for name, each in value.items() if name not in own}
    for name, each in fields.items():
        if name in FIELDS:
            _check_field(reader, f"{key}.{name}", name, each)
        elif name not in POD_FIELDS:
            reader.unknown(f"{key}.{name}", each, name, GROUP_FIELDS)
    name, count = value.get("name"), value.get("count", 1)
    usable = isinstance(name, str) and GROUP_NAME.fullmatch(name) is not None
    if not usable:
        bound = "must be 1 to 32 lowercase letters, digits and hyphens after a letter"
        reader.fault(f"{key}.name", name, bound, "give the group such a name, such as gpu")
    grown = any(part in value for part in (*RANGE, "idleMinutes"))
    if hosts is not None:
        for part in {"count", "max"} & value.keys():
            bound = "must not be set: the group is of the hosts that name it"
            reader.fault(f"{key}.{part}", value[part], bound, f"remove {part}")
        count = hosts.get(str(name), 0)
        growth = _growth(reader, key, value, count) if grown and count else None
        return NodeGroup(name=str(name), count=count, fields=fields, growth=growth)
    if grown and "count" in value:
        bound = "is for a group of one size, and min or max is set"
        reader.fault(f"{key}.count", count, bound, "remove count, or min, max and idleMinutes")
    elif grown:
        growth = _growth(reader, key, value, value.get("max", 0))
        found = NodeGroup(name=str(name), count=value.get("max", 0), fields=fields, growth=growth)
        return found if usable and growth else None
    elif not _is_count(count, 1):
        bound = f"must be a whole number from 1 to {MAX_WORKERS}"
        reader.fault(f"{key}.count", count, bound, "set it within it")
    elif usable:
        return NodeGroup(name=str(name), count=count, fields=fields)
    return None


def _growth(reader: Reader, key: str, value: Mapping[str, Any], most: Any) -> Growth | None:
    """Return how a group of at most so many nodes grows; None after a fault."""
    least = value.get("min", 0)
    idle = value.get("idleMinutes", IDLE_MINUTES)
    faults = len(reader.faults)
    if not _is_count(most, 1):
        bound = f"must be a whole number from 1 to {MAX_WORKERS}"
        reader.fault(f"{key}.max", most, bound, "set how many nodes the group has at most")
    elif not _is_count(least, 0) or least >= most:
        if "max" in value:
            bound, action = "below max", "lower min, or set count in place of both"
        else:
            bound, action = f"below its {most} hosts", "lower min, or remove it"
        bound = f"must be a whole number from 0 to {most - 1}, {bound}"
        reader.fault(f"{key}.min", least, bound, action)
    number = isinstance(idle, int | float) and not isinstance(idle, bool)
    if not number or not 0 < idle <= MAX_IDLE_MINUTES:
        bound = f"must be a number of minutes above 0, at most {MAX_IDLE_MINUTES:g}"
        reader.fault(f"{key}.idleMinutes", idle, bound, "set it within it")
    if len(reader.faults) > faults:
        return None
    return Growth(least=least, idle_seconds=idle * 60)


def _is_count(value: Any, least: int) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and least <= value <= MAX_WORKERS


def check_accelerator(
    reader: Reader, accelerator: str, head: Mapping[str, Any], groups: Sequence[NodeGroup]
) -> None:
    """Note settings that conflict with an accelerator's devices."""
    with_it = f"with accelerator = {accelerator!r}"
    gpus: Any = head.get("gpus")
    if _is_amount(gpus) and gpus > 0:
        bound = f"must be 0 {with_it}: the devices are for the workers"
        reader.fault("head.gpus", gpus, bound, "remove head.gpus")
    for group in groups:
        gpus = group.fields.get("gpus")
        least = 0 if group.name else 1  # a group may have no devices if another has
        if _is_amount(gpus) and (gpus < least or gpus % 1):
            bound = f"must be a whole number of devices, {least} or more, {with_it}"
            reader.fault(f"{group.key}.gpus", gpus, bound, "set it so, or set accelerator to none")
        elif _is_amount(gpus) and gpus > 1 and accelerator == "nvidia":
            # pulumi-docker's `gpus` reads the text after a comma in a list of devices as a count.
            bound = f"must be 1 {with_it}: a container gets one of NVIDIA's devices"
            action = "remove it, and have as many workers as devices"
            reader.fault(f"{group.key}.gpus", gpus, bound, action)


def _check_field(reader: Reader, key: str, name: str, value: Any) -> None:
    match name:
        case "cpus" | "gpus":
            _check_amount(reader, key, value)
        case "memoryMib":
            _check_mib(reader, key, value, 1)
        case "objectStoreMib":
            _check_mib(reader, key, value, OBJECT_STORE_MIN_MIB)
        case "resources" if isinstance(value, dict):
            for resource, amount in value.items():
                if not resource or resource in RESERVED_RESOURCES:
                    taken = ", ".join(sorted(RESERVED_RESOURCES))
                    bound = f"must be a name other than {taken}"
                    reader.fault(f"{key}.{resource}", amount, bound, "use the field of its own")
                _check_amount(reader, f"{key}.{resource}", amount)
        case "resources":
            bound = "must be an object of amounts by name"
            reader.fault(key, value, bound, "write it as {name: amount}")
        case _:
            reader.unknown(key, value, name, FIELDS)


def _check_amount(reader: Reader, key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        reader.fault(key, value, "must be a number", f"set {key} to a number")
    elif not _is_amount(value):
        reader.fault(key, value, f"must be from 0 to {MAX_AMOUNT}", f"set {key} within it")


def _is_amount(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= MAX_AMOUNT


def _check_mib(reader: Reader, key: str, value: Any, low: int) -> None:
    high = MAX_AMOUNT * 1024
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bound = f"must be a whole number of MiB from {low} to {high}"
        reader.fault(key, value, bound, f"set {key} within it")
