"""The description of a Ray cluster on Kubernetes: plain values, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.ray_node import NodeResources

GROUP = "worker"  # name of the group of workers without one
HEAD_GROUP = "headgroup"  # KubeRay's name of the head's group
USER = 1000  # of the image docker/ray
# A node that is rented for a pod, its driver and 20 GB of image take up to a quarter of an hour. A
# pod that took longer is recreated, and then finds node and image there.
POD_SECONDS = 900
SECRET_MODE = 0o440  # of secret files: their group is the pod's fsGroup


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A volume of a pod.

    Attributes:
        name: of the volume, unique in a pod.
        path: folder at which the pod finds it.
        source: its kind in Kubernetes' words: {"secret": …}, {"configMap": …}.
    """

    name: str
    path: str
    source: Mapping[str, Any]
    read_only: bool = True

    @property
    def volume(self) -> dict[str, Any]:
        return {"name": self.name, **self.source}

    @property
    def mount(self) -> dict[str, Any]:
        found = {"name": self.name, "mountPath": self.path}
        return {**found, "readOnly": True} if self.read_only else found


# Values as Kubernetes' programs write them. Kueue writes a RayCluster as a whole, and an apply of
# other forms of the same values would be a change.
def cpu_quantity(cpus: float) -> str:
    """Return an amount of CPUs as Kubernetes writes it."""
    return f"{cpus:.0f}" if cpus == round(cpus) else f"{1000 * cpus:.0f}m"


def memory_quantity(mib: int) -> str:
    """Return an amount of memory as Kubernetes writes it."""
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"


def memory(name: str, path: str, mib: Any) -> Mount:
    """Return a volume in memory."""
    source = {"emptyDir": {"medium": "Memory", "sizeLimit": memory_quantity(mib)}}
    return Mount(name=name, path=path, source=source, read_only=False)


def source_of(kind: str, where: str) -> dict[str, Any]:
    """Return the source of an existing volume as Kubernetes says it: a claim, nfs, or a path."""
    server, _, path = where.partition(":")
    return {
        "claim": {"persistentVolumeClaim": {"claimName": where}},
        "nfs": {"nfs": {"server": server, "path": path}},
        "path": {"hostPath": {"path": where, "type": "Directory"}},
    }[kind]


@dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """Workers that are alike.

    Attributes:
        node: what each offers to jobs; its growth says that the group grows, its group has a name.
        count: how many; of a group that grows, at most.
        image: of its pods, "" for the cluster's.
        node_selector: labels of the Kubernetes nodes that it runs on.
        tolerations: taints of these that it tolerates.
    """

    node: NodeResources
    count: int
    image: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        if self.name == HEAD_GROUP:
            raise ValueError(f"group {self.name} has KubeRay's name for the head: rename it")

    @property
    def name(self) -> str:
        return self.node.group or GROUP


@dataclass(frozen=True, kw_only=True)
class Packages:
    """What jobs need and an image with Ray alone lacks, as `node.packages` installs it.

    Attributes:
        folder: where the packages are in a volume.
        python: major.minor that the image has to have.
    """

    folder: str
    module: str
    python: str


@dataclass(frozen=True, kw_only=True)
class RayClusterSpec:
    """A Ray cluster on Kubernetes.

    Values of environment may be Pulumi's outputs: they are passed on unchanged.

    Attributes:
        name: name of the RayCluster; the names of the objects that KubeRay makes begin with it.
        labels: on it and on its pods; together they tell the stack from others.
        image: of all pods, with Ray and what jobs need.
        pull_secrets: names of Secrets by which the image is pulled.
        token_secret: name of a Secret with Ray's token under `auth_token`.
        head: resources that the head offers to jobs.
        ports: the head's TCP ports, by the names of their settings.
        shared: path of the one among them where jobs keep results, "" for none; all pods check at
            their start that they may write there.
        packages: what pods install first; None where the image has all that jobs need.
        accelerator: kind of the nodes' GPUs, nvidia or amd; "" counts them only.
        annotations: annotations of all pods. KubeRay recreates the pods when one changes, so
            digests of the files' contents belong here.
        environment_secret: name of a Secret with further variables of all nodes, "" for none.
        group: group that owns volumes; a folder of the host must belong to it already.
        cpu_share: share of the CPUs that nodes offer, which Kubernetes keeps for them.
        queue_labels: labels of Kueue, on the RayCluster alone.
        drain_seconds: that a worker's pod may take until runs have left it.
        pod_seconds: how long a pod may take until Ray runs in it, before the autoscaler ends it
            and asks for one of another group, if that has room; for groups that grow.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    image: str
    ray_version: str
    token_secret: str
    head: NodeResources
    groups: Sequence[WorkerGroup]
    ports: Mapping[str, int]
    head_environment: Mapping[str, Any]
    worker_environment: Mapping[str, Any]
    drain_seconds: int
    pull_secrets: Sequence[str] = ()
    mounts: Sequence[Mount] = ()
    head_mounts: Sequence[Mount] = ()
    shared: str = ""
    packages: Packages | None = None
    accelerator: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    environment_secret: str = ""
    group: int = USER
    cpu_share: float = 1.0
    queue_labels: Mapping[str, str] = field(default_factory=dict)
    pod_seconds: int = POD_SECONDS

    def __post_init__(self) -> None:
        for node in (self.head, *(group.node for group in self.groups)):
            _check(node)

    @property
    def grows(self) -> bool:
        """Whether any group grows, which needs an autoscaler."""
        return any(group.node.growth is not None for group in self.groups)


def _check(node: NodeResources) -> None:
    name = node.group or "head or worker"
    for amount, of in ((node.cpus, "cpus"), (node.gpus, "gpus")):
        if amount % 1:
            raise ValueError(
                f"{of} of {name} is {amount:g}: KubeRay's autoscaler takes whole numbers, "
                "set it to one"
            )
    for resource in node.resources:
        # KubeRay puts them between single quotes in a command of bash; Ray drops backslashes.
        if "'" in resource or "\\" in resource:
            raise ValueError(
                f"resource {resource!r} of {name} must have neither quotes nor backslashes: "
                "rename it"
            )
