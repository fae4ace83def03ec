"""Settings of a stack on Kubernetes; the cluster itself is looked at by the runtime."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from cluster import ray_cluster, services
from cluster.kuberay_pods import AGENT_PORT, GPU_RESOURCES, METRICS_PORT
from cluster.kuberay_spec import POD_SECONDS
from cluster.ray_node import NodeResources
from infra import build_context, node_settings, tools
from infra.container_limits import Bounds
from infra.container_settings import Dataset, digest_fault
from infra.hosts import go_programs
from infra.hosts.local import LocalHost
from infra.images import BUILT
from infra.model import ABSOLUTE, Fault, Items, Meaning, Model, Says, matching, whole
from infra.node_settings import GROUPS, OF_PODS, Group, Node, NodeGroup
from trainyard.access.kubectl import KUBECONFIG

KEY = "kubernetes"
# Names of Kubernetes: of a namespace, and of objects that may have dots.
LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
AS_SHOWN = "write it as kubectl shows it"
ONE_SHARED = "must be an object with one of claim, hostPath"
WRITE_SHARED = "write {claim: NAME} or {hostPath: /folder}"
# The names of a stack's objects begin with its own; KubeRay appends to that of the cluster.
STACK = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")
# Ports of each pod that are not the settings': KubeRay's own, for Ray's agents.
TAKEN_PORTS = (METRICS_PORT, AGENT_PORT)
NO_PORTS_OF_PODS = ("agentPort", ray_cluster.NODE_SWITCH_PORT)
# Defaults of a worker: this machine's size says nothing about a pod's.
WORKER_CPUS, WORKER_MEMORY_MIB = 2, 8192


def _context(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError
    return text


def _kubeconfig(text: str) -> str:
    path = Path(text)
    if not text.isprintable() or not path.expanduser().is_absolute() or ".." in path.parts:
        raise ValueError
    return text


class Shared(Model):
    """The volume that all Ray pods share: a claim, or a folder of each node."""

    claim: Annotated[str, matching(NAME, "must be the name of a claim", AS_SHOWN)] = ""
    host_path: Annotated[str, ABSOLUTE] = ""

    def faults(self) -> Iterator[Fault]:
        """Yield anything but one of them."""
        if bool(self.claim) == bool(self.host_path):
            yield Fault("", ONE_SHARED, WRITE_SHARED)


class Kubernetes(Model):
    """The place of a stack in a cluster.

    Attributes:
        context: of the kubeconfig.
        kubeconfig: path of that file, "" for the default of kubectl.
        namespace: of all objects.
        storage_class: of claims, "" for the cluster's default.
        storage_gib: size of each claim.
        shared: what pods share; None for nothing.
        group: group of the files in volumes.
        pull_secrets: names of the Secrets by which images are pulled.
        cpu_share: of the CPUs that Ray nodes offer, the share that is kept for them.
        pod_timeout_seconds: time that a pod of a group that grows may take until Ray runs in it.
    """

    context: Annotated[
        str,
        Says(
            "must be a context of the kubeconfig",
            "choose one: kubectl config get-contexts",
            AfterValidator(_context),
        ),
    ]
    kubeconfig: Annotated[
        str,
        Says(
            "must be an absolute path, or begin with ~/",
            f"write the path of the file; {KUBECONFIG} is the default",
            AfterValidator(_kubeconfig),
        ),
    ] = ""
    namespace: Annotated[
        str, matching(LABEL, "must be at most 63 lowercase letters, digits and hyphens", AS_SHOWN)
    ] = "default"
    storage_class: Annotated[
        str, matching(NAME, "must be the name of a StorageClass", AS_SHOWN)
    ] = ""
    storage_gib: Annotated[int, whole(1, 1_000_000)] = 20
    shared: Annotated[Shared | None, Meaning(ONE_SHARED, WRITE_SHARED)] = None
    group: Annotated[int, whole(1, 2**31 - 1)] = 1000
    pull_secrets: Annotated[
        Items[Annotated[str, matching(NAME, "must be names of Secrets", AS_SHOWN)]],
        Meaning("must be an array", "write [NAME, …] of Secrets"),
    ] = ()
    cpu_share: Annotated[
        float, Says("must be above 0, at most 1", "leave it out for 1", Field(gt=0, le=1))
    ] = 1.0
    pod_timeout_seconds: Annotated[int, whole(60, 86_400)] = POD_SECONDS


def faults(where: Kubernetes | None, stack: str) -> Iterator[Fault]:
    """Yield what the stack lacks for a cluster; its name must be one of Kubernetes."""
    if where is None:
        bound = f"must be set with runtime = {KEY!r}"
        yield Fault(f"{KEY}.context", bound, "choose one: kubectl config get-contexts", "")
    if not STACK.fullmatch(stack):
        bound = "must be at most 30 lowercase letters, digits and hyphens after a letter: names "
        yield Fault(
            "stack", f"{bound}of Kubernetes begin with it", "make a stack with such a name", stack
        )


def elsewhere_faults(where: Kubernetes | None, runtime: str) -> Iterator[Fault]:
    """Yield a cluster that a stack of another runtime does not use."""
    if where:
        bound = f"does nothing with runtime = {runtime!r}"
        action = f"set runtime to {KEY}, or remove {KEY}"
        yield Fault(KEY, bound, action, sorted(where.set_fields()))


def pod_faults(groups: Sequence[Group], runtime: str) -> Iterator[Fault]:
    """Yield fields of groups that only pods have."""
    for group in groups:
        for name, value in group.set_fields().items():
            if name in OF_PODS:
                bound = f"is of pods, and runtime = {runtime!r}"
                action = f"remove it, or set runtime to {KEY}"
                yield Fault(f"{GROUPS}.{group.name}.{name}", bound, action, value)


def dataset_faults(data: Dataset | None, where: Kubernetes | None) -> Iterator[Fault]:
    """Yield a source of images that pods cannot read, or have nowhere to put."""
    if data and data.archive:
        bound = "is a file of this machine, which pods do not have"
        yield Fault("dataset.archive", bound, "use dataset.url")
    if data and where and not where.shared:
        bound = f"needs a volume that pods share: {KEY}.shared is not set"
        yield Fault("dataset", bound, f"set {KEY}.shared", sorted(data.set_fields()))


def limit_faults(limits: Mapping[str, Bounds]) -> Iterator[Fault]:
    """Yield bounds that a cluster sets by itself."""
    for service, bounds in limits.items():
        if bounds.processes:
            key = f"containerLimits.{service}.processes"
            yield Fault(key, "is bounded by the kubelet (podPidsLimit)", f"remove {key}")


def digest_faults(groups: Sequence[Group]) -> Iterator[Fault]:
    """Yield images of groups without a digest."""
    for group in groups:
        if group.image:
            key = f"{GROUPS}.{group.name}.image"
            yield from digest_fault(key, group.image, f"write {group.image}")


def image_faults(
    images: Collection[str], programs: Collection[str], object_store: str
) -> Iterator[Fault]:
    """Yield images that a cluster cannot have: nothing is built there.

    Args:
        images: programs that have one.
        programs: that run.
        object_store: as it is set.
    """
    others = services.STORES.keys() - {store(object_store)}
    for program in sorted({*BUILT} & {*programs} - others - {*images}):
        bound = f"must be named with runtime = {KEY!r}: nothing is built there"
        action = f"build and push it: python -m infra.build_images REGISTRY {program} --push, and "
        action += f"write its output as images.{program} (docs/kubernetes.md)"
        if program == build_context.NOTEBOOK:
            action += "; or set notebook to false"
        yield Fault(f"images.{program}", bound, action, "")


def gpu_faults(head: Node, groups: Sequence[NodeGroup]) -> Iterator[Fault]:
    """Yield GPUs whose pods would get none: Kubernetes hands them out by the name of their kind."""
    nodes = {"head": head.gpus} | {group.key: group.fields.get("gpus") for group in groups}
    for key, gpus in nodes.items():
        if gpus:
            bound = f"must be 0 with runtime = {KEY!r} and accelerator = 'none': pods get no GPU"
            action = f"set accelerator to {' or '.join(GPU_RESOURCES)}, or remove {key}.gpus"
            yield Fault(f"{key}.gpus", bound, action, gpus)


def port_faults(ports: Mapping[str, int]) -> Iterator[Fault]:
    """Yield ports of the head that KubeRay gives to Ray's agents, in each pod."""
    for setting in services.RAY.ports:
        if ports[setting.key] in TAKEN_PORTS and setting.key not in NO_PORTS_OF_PODS:
            taken = " nor ".join(str(each) for each in TAKEN_PORTS)
            bound = f"must be neither {taken}: Ray's agents have these in each pod"
            yield Fault(setting.key, bound, f"set {setting.key} to another port")


def store(setting: str) -> str:
    """Return the name of the object store that runs."""
    return go_programs.DEFAULT if setting == tools.AUTO else setting


def workers(groups: Sequence[NodeGroup], devices: int) -> tuple[NodeResources, ...]:
    """Return the resources of each worker by group; a pod has the CPUs that it offers."""
    total = sum(group.count for group in groups)
    size = LocalHost(cpus=WORKER_CPUS * total, memory_mib=WORKER_MEMORY_MIB * total)
    found = node_settings.workers(groups, size, devices)
    return tuple(replace(node, threads=None) for node in found)
