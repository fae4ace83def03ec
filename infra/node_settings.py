"""Settings of Ray nodes: the head's, the workers', and groups of workers that differ.

Deliberately absent: any look at a machine, except the size of the given one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from cluster.ray_node import OBJECT_STORE_MIN_MIB, RESERVED_RESOURCES, Growth, NodeResources
from infra.container_settings import Image
from infra.hosts.local import LocalHost
from infra.model import Fault, Items, Meaning, Model, Says, matching, number, whole

MAX_WORKERS = 64
MAX_AMOUNT = 1_000_000  # of CPUs, GPUs or a custom resource
GROUPS = "nodeGroups"
# Defaults of nodes.
HEAD_MEMORY_MIB = 1024
HEAD_OBJECT_STORE_MIB = 128
WORKERS_MEMORY_SHARE = 0.6  # of the machine's memory, for all workers together
WORKERS_OBJECT_STORE_SHARE = 0.1
WORKER_OBJECT_STORE_MAX_MIB = 2048
# Of Kubernetes nodes: a label, which may have a domain, and its value.
NODE_LABEL = re.compile(
    r"([a-z0-9][a-z0-9.-]{0,252}/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)

Amount = Annotated[float | None, number(0, MAX_AMOUNT)]
Mib = Annotated[int | None, whole(1, MAX_AMOUNT * 1024, "MiB")]


def _resource(name: str) -> str:
    if not name or name in RESERVED_RESOURCES:
        raise ValueError
    return name


def _labels(chosen: dict[str, str]) -> dict[str, str]:
    for name, label in chosen.items():
        if not (NODE_LABEL.fullmatch(name) and LABEL_VALUE.fullmatch(label)):
            raise ValueError
    return chosen


class Node(Model):
    """What a Ray node offers to jobs; a field that is None follows from the machine."""

    cpus: Amount = None
    gpus: Amount = None
    memory_mib: Mib = None
    object_store_mib: Annotated[
        int | None, whole(OBJECT_STORE_MIN_MIB, MAX_AMOUNT * 1024, "MiB")
    ] = None
    resources: Annotated[
        dict[
            Annotated[
                str,
                Says(
                    f"must be a name other than {', '.join(sorted(RESERVED_RESOURCES))}",
                    "use the field of its own",
                    AfterValidator(_resource),
                ),
            ],
            Amount,
        ],
        Meaning("must be an object of amounts by name", "write it as {name: amount}"),
    ] = Field(default={})


class Toleration(Model):
    """A taint that pods tolerate."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str | None = None
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""

    def faults(self) -> Iterator[Fault]:
        """Yield what the API refuses: Exists has no value, and only Exists is for any key."""
        exists = self.operator == "Exists"
        if not self.model_fields_set or (self.value is not None if exists else not self.key):
            yield Fault("", "", "")


class Group(Node):
    """Workers that are alike, and how many there are; image and the rest are of pods."""

    name: Annotated[
        str,
        matching(
            r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?",
            "must be 1 to 32 lowercase letters, digits and hyphens after a letter",
            "give the group such a name, such as gpu",
        ),
    ]
    count: Annotated[int, whole(1, MAX_WORKERS)] = 1
    min: Annotated[int, whole(0, MAX_WORKERS)] = 0
    max: Annotated[int, whole(1, MAX_WORKERS)] = 0
    idle_minutes: Annotated[
        float,
        Says(
            "must be a number of minutes above 0, at most 1440",
            "set {key} within it",
            Field(gt=0, le=1440),
            kind=int | float,
        ),
    ] = 5
    image: Image | None = None
    node_selector: Annotated[
        dict[str, str],
        Says(
            "must be an object of labels, all of them texts",
            'write {label: "value"}; kubectl get nodes --show-labels lists them',
            AfterValidator(_labels),
        ),
    ] = Field(default={})
    tolerations: Annotated[
        Items[Toleration],
        Says(
            "must be an array of objects with key (a text), operator (Equal or Exists), value (a "
            "text), effect (NoSchedule, PreferNoSchedule, NoExecute)",
            "write what the nodes' taints ask for: kubectl describe nodes",
        ),
    ] = ()

    @property
    def grows(self) -> bool:
        """Whether Ray's autoscaler starts and ends its nodes."""
        return bool(self.model_fields_set & GROWTH)


GROWTH = {"min", "max", "idle_minutes"}
OF_GROUPS = {"name", "count", *GROWTH}
OF_PODS = {"image", "nodeSelector", "tolerations"}  # as settings name them


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Workers that are alike, in the numbers of their stack.

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


def groups(given: Sequence[Group], sizes: Mapping[str, int] | None) -> tuple[NodeGroup, ...]:
    """Return the groups with their numbers.

    Args:
        given: their settings.
        sizes: how many hosts name each group; None where groups have sizes of their own.
    """
    found = []
    for group in given:
        count = group.max if group.grows else group.count
        if sizes is not None:
            count = sizes.get(group.name, 0)
        growth = Growth(least=group.min, idle_seconds=group.idle_minutes * 60)
        fields = group.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=OF_GROUPS)
        found.append(
            NodeGroup(
                name=group.name,
                count=count,
                fields=fields,
                growth=growth if group.grows and count else None,
            )
        )
    return tuple(found)


def faults(given: Sequence[Group], sizes: Mapping[str, int] | None) -> Iterator[Fault]:
    """Yield faults of groups taken together; see groups."""
    names = [group.name for group in given]
    for index, group in enumerate(given):
        key, sized = f"{GROUPS}[{index}]", {"count", "max"} & group.model_fields_set
        if group.name in names[:index]:
            yield Fault(f"{key}.name", "is the name of two groups", "give one another name")
        most, bound, action = group.max, "below max", "lower min, or set count in place of both"
        if sizes is not None:
            most = sizes.get(group.name, 0)
            bound, action = f"below its {most} hosts", "lower min, or remove it"
            for part in sorted(sized):
                why = "must not be set: the group is of the hosts that name it"
                yield Fault(f"{key}.{part}", why, f"remove {part}")
        elif group.grows and "count" in sized:
            why = "is for a group of one size, and min or max is set"
            yield Fault(f"{key}.count", why, "remove count, or min, max and idleMinutes")
        elif group.grows and not most:
            why = f"must be a whole number from 1 to {MAX_WORKERS}"
            yield Fault(f"{key}.max", why, "set how many nodes the group has at most", 0)
        if group.grows and most and group.min >= most:
            yield Fault(
                f"{key}.min", f"must be a whole number from 0 to {most - 1}, {bound}", action
            )
    if (total := sum(group.count for group in groups(given, sizes))) > MAX_WORKERS:
        bound = f"must have {MAX_WORKERS} workers at most in all"
        yield Fault(GROUPS, bound, "lower count", f"{total} workers")


def accelerator_faults(
    accelerator: str, head: Node, groups: Sequence[NodeGroup]
) -> Iterator[Fault]:
    """Yield settings that conflict with an accelerator's devices."""
    with_it = f"with accelerator = {accelerator!r}"
    if head.gpus:
        bound = f"must be 0 {with_it}: the devices are for the workers"
        yield Fault("head.gpus", bound, "remove head.gpus")
    for group in groups:
        gpus = group.fields.get("gpus")
        least = 0 if group.name else 1  # a group may have no devices if another has
        if gpus is None:
            continue
        if gpus < least or gpus % 1:
            bound = f"must be a whole number of devices, {least} or more, {with_it}"
            action = "set it so, or set accelerator to none"
            yield Fault(f"{group.key}.gpus", bound, action, gpus)
        elif gpus > 1 and accelerator == "nvidia":
            # pulumi-docker's `gpus` reads the text after a comma in a list of devices as a count.
            bound = f"must be 1 {with_it}: a container gets one of NVIDIA's devices"
            action = "remove it, and have as many workers as devices"
            yield Fault(f"{group.key}.gpus", bound, action, gpus)


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
