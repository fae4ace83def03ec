"""Settings of Ray nodes: the head's, the workers', and groups of workers that differ.

Deliberately absent: any look at a machine, except the size of the given one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field

from cluster.model import Fault, Items, Meaning, Model, Says, matching, number, satisfying, whole
from cluster.ray_node import OBJECT_STORE_MIN_MIB, RESERVED_RESOURCES, Growth, NodeResources
from infra.machines.local import LocalHost
from infra.settings.containers import Image

MAX_WORKERS = 64
MAX_AMOUNT = 1_000_000  # of CPUs, GPUs or a custom resource
GROUPS = "nodeGroups"
# Defaults of nodes.
HEAD = NodeResources(cpus=0, gpus=0, memory_mib=1024, object_store_mib=128)
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
                satisfying(
                    lambda name: name and name not in RESERVED_RESOURCES,
                    f"must be a name other than {', '.join(sorted(RESERVED_RESOURCES))}",
                    "use the field of its own",
                ),
            ],
            Amount,
        ],
        Meaning("must be an object of amounts by name", "write it as {name: amount}"),
    ] = Field(default={})

    def over(self, defaults: NodeResources) -> NodeResources:
        """Return the resources of a node: those that are set, and defaults for the others."""
        own = {name: getattr(self, name) for name in Node.model_fields}
        return replace(defaults, **{name: own[name] for name in own if own[name] is not None})


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
    """Workers that are alike, and how many there are; image and the rest are of pods.

    The settings `worker` and `workers` make a group without a name.
    """

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
    image: Image = ""
    node_selector: Annotated[
        dict[str, str],
        satisfying(
            lambda chosen: all(
                NODE_LABEL.fullmatch(name) and LABEL_VALUE.fullmatch(chosen[name])
                for name in chosen
            ),
            "must be an object of labels, all of them texts",
            'write {label: "value"}; kubectl get nodes --show-labels lists them',
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

    @property
    def growth(self) -> Growth | None:
        """The least number, and the idle time; None if all are always there."""
        if not (self.grows and self.count):
            return None
        return Growth(least=self.min, idle_seconds=self.idle_minutes * 60)

    @property
    def key(self) -> str:
        """The name of its fields in faults."""
        return f"{GROUPS}.{self.name}" if self.name else "worker"

    def sized(self, sizes: Mapping[str, int] | None) -> Self:
        """Return the group with the most nodes that it may have as its count.

        `sizes` has how many hosts name each group; None where groups have sizes of their own.
        """
        count = self.max if self.grows else self.count
        return self.model_copy(
            update={"count": count if sizes is None else sizes.get(self.name, 0)}
        )


GROWTH = {"min", "max", "idle_minutes"}
OF_PODS = {"image", "nodeSelector", "tolerations"}  # as settings name them


def faults(given: Sequence[Group], sizes: Mapping[str, int] | None) -> Iterator[Fault]:
    """Yield faults of groups taken together; see Group.sized."""
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
    if (total := sum(group.sized(sizes).count for group in given)) > MAX_WORKERS:
        bound = f"must have {MAX_WORKERS} workers at most in all"
        yield Fault(GROUPS, bound, "lower count", f"{total} workers")


def accelerator_faults(accelerator: str, head: Node, groups: Sequence[Group]) -> Iterator[Fault]:
    """Yield settings that conflict with an accelerator's devices."""
    with_it = f"with accelerator = {accelerator!r}"
    if head.gpus:
        bound = f"must be 0 {with_it}: the devices are for the workers"
        yield Fault("head.gpus", bound, "remove head.gpus")
    for group in groups:
        gpus = group.gpus
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


def workers(groups: Sequence[Group], host: LocalHost, devices: int) -> tuple[NodeResources, ...]:
    """Return the resources of each worker of this machine, group by group."""
    total = sum(group.count for group in groups)
    return tuple(
        worker(group, host.cpus, host.memory_mib, devices, total)
        for group in groups
        for _ in range(group.count)
    )


def worker(group: Group, cpus: int, memory_mib: int, gpus: int, total: int = 1) -> NodeResources:
    """Return the resources of one of a machine's workers: its group's settings, else its share.

    Memory is in MiB; `gpus` counts where the settings give no number. `total` workers share it.
    """
    share, cpus = int(memory_mib * WORKERS_OBJECT_STORE_SHARE / total), max(1, cpus // total)
    found = group.over(
        NodeResources(
            group=group.name,
            growth=group.growth,
            cpus=cpus,
            gpus=gpus,
            memory_mib=max(1, int(memory_mib * WORKERS_MEMORY_SHARE / total)),
            object_store_mib=min(max(share, OBJECT_STORE_MIN_MIB), WORKER_OBJECT_STORE_MAX_MIB),
        )
    )
    return replace(found, threads=cpus if found.cpus > cpus else None)
