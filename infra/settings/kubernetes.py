"""Settings of a stack on Kubernetes; the cluster itself is looked at by the runtime."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cluster import kuberay, ray_cluster, services
from cluster.kuberay_pods import AGENT_PORT, GPU_RESOURCES, METRICS_PORT
from cluster.kuberay_spec import POD_SECONDS, source_of
from cluster.model import (
    ABSOLUTE,
    NAMES,
    Fault,
    Items,
    Meaning,
    Model,
    Says,
    is_absolute,
    matching,
    satisfying,
    whole,
)
from cluster.ray_node import NodeResources
from infra.machines.tools import AUTO, DIRECTORY
from infra.settings import build_context
from infra.settings import nodes as node_settings
from infra.settings.container_limits import ContainerLimits
from infra.settings.containers import Dataset, Image
from infra.settings.hosts import from_home
from infra.settings.images import BUILT
from infra.settings.nodes import OF_PODS, Group, Node
from trainyard.access.kubectl import KUBECONFIG

KEY = "kubernetes"
# Names of Kubernetes: of a namespace, and of objects that may have dots.
LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
OTHERWISE = {  # than to build a program's image
    build_context.NOTEBOOK: "; or set notebook and page to false",
    "ray": f"; or set {KEY}.image to Ray's own",
}
AS_SHOWN = "write it as kubectl shows it"
BUCKET = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._~@+=,-]+)*"
NFS = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?:/[^\s:]{0,1000}"
# The names of a stack's objects begin with its own; KubeRay appends to that of the cluster.
STACK = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")
# Ports of each pod that are not the settings': KubeRay's own, for Ray's agents.
TAKEN_PORTS = (METRICS_PORT, AGENT_PORT)
NO_PORTS_OF_PODS = ("agentPort", ray_cluster.NODE_SWITCH_PORT)
# Defaults of a worker: this machine's size says nothing about a pod's.
WORKER_CPUS, WORKER_MEMORY_MIB = 2, 8192


class Shared(Model):
    """The volume that all Ray pods share: a claim, or a folder of each node or an NFS server."""

    claim: Annotated[str, matching(NAME, "must be the name of a claim", AS_SHOWN)] = ""
    host_path: Annotated[str, ABSOLUTE] = ""
    nfs: Annotated[str, matching(NFS, "must be SERVER:/folder", "write it as mount takes it")] = ""

    def faults(self) -> Iterator[Fault]:
        """Yield anything but one of them."""
        if len(self.model_fields_set) != 1:
            bound = "must be an object with one of claim, hostPath, nfs"
            yield Fault(
                "", bound, "write {claim: NAME}, {hostPath: /folder} or {nfs: HOST:/folder}"
            )

    @property
    def source(self) -> dict[str, Any]:
        """The volume's source, as Kubernetes says it."""
        kind = "claim" if self.claim else "nfs" if self.nfs else "path"
        return source_of(kind, self.claim or self.nfs or self.host_path)


class Kubernetes(Model):
    """The place of a stack in a cluster.

    Attributes:
        kubeconfig: path of that file, "" for the default of kubectl.
        image: Ray's own, for all Ray pods, which install what jobs need; "" for images.ray.
        bucket: URL of an existing one for results, "" for none.
        environment_secret: name of a Secret with variables for all Ray pods, such as its keys.
        storage_class: of claims, "" for the cluster's default.
        storage_gib: size of each claim.
        shared: what pods share; None for nothing.
        group: group of the files in volumes.
        pull_secrets: names of the Secrets by which images are pulled.
        cpu_share: of the CPUs that Ray nodes offer, the share that is kept for them.
        pod_timeout_seconds: time that a pod of a group that grows may take until Ray runs in it.
        queue: name of the LocalQueue of Kueue that says when Ray's pods may run, "" for at once.
        priority_class: name of a WorkloadPriorityClass of Kueue, "" for none.
    """

    context: Annotated[
        str,
        satisfying(
            lambda text: text.strip() and text.isprintable(),
            "must be a context of the kubeconfig",
            "choose one: kubectl config get-contexts",
        ),
    ]
    kubeconfig: Annotated[
        str,
        satisfying(
            lambda text: is_absolute(Path(from_home(text))),
            "must be an absolute path, or begin with ~/",
            f"write the path of the file; {KUBECONFIG} is the default",
        ),
    ] = ""
    namespace: Annotated[
        str, matching(LABEL, "must be at most 63 lowercase letters, digits and hyphens", AS_SHOWN)
    ] = "default"
    image: Image = ""
    bucket: Annotated[
        str, matching(BUCKET, "must be s3://BUCKET[/PREFIX]", "name an existing bucket")
    ] = ""
    environment_secret: Annotated[str, matching(NAME, "must be the name of a Secret", AS_SHOWN)] = (
        ""
    )
    storage_class: Annotated[
        str, matching(NAME, "must be the name of a StorageClass", AS_SHOWN)
    ] = ""
    storage_gib: Annotated[int, whole(1, 1_000_000)] = 20
    shared: Shared | None = None
    group: Annotated[int, whole(1, 2**31 - 1)] = 1000
    pull_secrets: Annotated[
        Items[Annotated[str, matching(NAME, "must be names of Secrets", AS_SHOWN)]],
        Meaning("must be an array", "write [NAME, …] of Secrets"),
    ] = ()
    cpu_share: Annotated[
        float, Says("must be above 0, at most 1", "leave it out for 1", Field(gt=0, le=1))
    ] = 1.0
    pod_timeout_seconds: Annotated[int, whole(60, 86_400)] = POD_SECONDS
    queue: Annotated[str, matching(LABEL, "must be the name of a LocalQueue", AS_SHOWN)] = ""
    priority_class: Annotated[
        str, matching(LABEL, "must be the name of a WorkloadPriorityClass", AS_SHOWN)
    ] = ""

    @property
    def queue_labels(self) -> dict[str, str]:
        """Labels by which Kueue takes a RayCluster; none without a queue."""
        named = {kuberay.QUEUE_LABEL: self.queue, kuberay.PRIORITY_LABEL: self.priority_class}
        return {label: name for label, name in named.items() if name}


def faults(
    where: Kubernetes | None,
    stack: str,
    beginning: str,
    data: Dataset | None,
    own_data: str,
    limits: Mapping[str, ContainerLimits],
) -> Iterator[Fault]:
    """Yield what a stack in a cluster lacks, and what pods do not have.

    All names of its objects begin with `beginning`, which Kubernetes must take. `own_data` is the
    name of the images' volume if `volumes` does not have it.
    """
    if where is None:
        bound = f"must be set with runtime = {KEY!r}"
        yield Fault(f"{KEY}.context", bound, "choose one: kubectl config get-contexts", "")
    if not STACK.fullmatch(stack):
        bound = "must be at most 30 lowercase letters, digits and hyphens after a letter: names "
        bound += "of Kubernetes begin with it"
        yield Fault("stack", bound, "make a stack with such a name", stack)
    elif not STACK.fullmatch(beginning):
        bound = f"makes names begin with {beginning!r}, which has over 30 characters"
        yield Fault("owner", bound, "set a shorter one, or make a stack with a shorter name", NAMES)
    if data and data.archive:
        bound = "is a file of this machine, which pods do not have"
        yield Fault("dataset.archive", bound, "use dataset.url")
    if own_data and where and not where.shared:
        bound = f"needs a volume that pods share: {KEY}.shared is not set"
        yield Fault("dataset", bound, f"set {KEY}.shared, or dataset.volume", NAMES)
    for service, bounds in limits.items():
        if bounds.processes:
            key = f"containerLimits.{service}.processes"
            yield Fault(key, "is bounded by the kubelet (podPidsLimit)", f"remove {key}")


def queue_faults(where: Kubernetes, growing: Sequence[Group], *, jobs: bool) -> Iterator[Fault]:
    """Yield what a queue of jobs lacks, if the stack has one, and groups that Kueue refuses."""
    if jobs and where.image:
        bound = f"has more packages than Ray's own image, and {KEY}.image is set"
        yield Fault("queue", bound, f"name an image as images.ray in place of {KEY}.image", True)
    if where.priority_class and not where.queue:
        bound = "is of Kueue's queues, and kubernetes.queue is not set"
        yield Fault(f"{KEY}.priorityClass", bound, "set the queue, or remove it")
    for group in growing if where.queue else ():
        bound = f"must be max with {KEY}.queue: Kueue admits groups of one size"
        yield Fault(f"{group.key}.min", bound, f"set min to max, or remove {KEY}.queue")


def image_and_store_faults(
    where: Kubernetes, asked: str, images: Collection[str], programs: Collection[str], gpus: str
) -> Iterator[Fault]:
    """Yield what is said twice, PyTorch for other GPUs, and a store that services do not read."""
    if where.image and gpus == "amd":
        bound = "gets the PyTorch of the package index, which has no ROCm"
        yield Fault(f"{KEY}.image", bound, "build an image for AMD, and name it as images.ray")
    if where.image and "ray" in images:
        yield Fault(f"{KEY}.image", "and images.ray are for the same pods", "remove one of them")
    if where.bucket and asked != AUTO:
        bound = f"and objectStore = {asked!r} are two stores"
        yield Fault(f"{KEY}.bucket", bound, "remove one of them")
    if (where.bucket or asked == DIRECTORY) and {"mlflow", build_context.NOTEBOOK} & {*programs}:
        bound = "and results are where notebook, page and MLflow do not read them"
        yield Fault("objectStore", bound, "set notebook and page to false, and remove tracking")
    if asked == DIRECTORY and not where.shared:
        bound = f"needs a volume that pods share: {KEY}.shared is not set"
        yield Fault("objectStore", bound, f"set {KEY}.shared, or objectStore to versitygw", asked)


def elsewhere_faults(
    where: Kubernetes | None, groups: Sequence[Group], runtime: str
) -> Iterator[Fault]:
    """Yield what a stack of another runtime does not use."""
    if where:
        bound, action = f"does nothing with runtime = {runtime!r}", f"set runtime to {KEY}, or "
        yield Fault(KEY, bound, f"{action}remove {KEY}", NAMES)
    for group in groups:
        for name, value in group.set_fields().items():
            if name in OF_PODS:
                bound = f"is of pods, and runtime = {runtime!r}"
                action = f"remove it, or set runtime to {KEY}"
                yield Fault(f"{group.key}.{name}", bound, action, value)


def image_faults(images: Collection[str], programs: Collection[str], store: str) -> Iterator[Fault]:
    """Yield images that a cluster cannot have: nothing is built there.

    `images` are the programs that have one, `programs` those that run, with the store.
    """
    others = services.STORES.keys() - {store}
    for program in sorted({*BUILT} & {*programs} - others - {*images}):
        bound = f"must be named with runtime = {KEY!r}: nothing is built there"
        action = f"build and push it: python -m infra.operate.build_images REGISTRY {program} "
        action += f"--push, and write its output as images.{program} (docs/kubernetes.md)"
        yield Fault(f"images.{program}", bound, action + OTHERWISE.get(program, ""), "")


def gpu_faults(head: Node, groups: Sequence[Group]) -> Iterator[Fault]:
    """Yield GPUs whose pods would get none: Kubernetes hands them out by the name of their kind."""
    nodes = {"head": head.gpus} | {group.key: group.gpus for group in groups}
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


def workers(groups: Sequence[Group], devices: int) -> tuple[NodeResources, ...]:
    """Return the resources of each worker by group; a pod has the CPUs that it offers."""
    return tuple(
        replace(node, threads=None)
        for group in groups
        for node in [node_settings.worker(group, WORKER_CPUS, WORKER_MEMORY_MIB, devices)]
        * group.count
    )
