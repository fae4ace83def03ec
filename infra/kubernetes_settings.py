"""Settings of a stack on Kubernetes; the cluster itself is looked at by the runtime."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster import ray_cluster, services
from cluster.kuberay_pods import AGENT_PORT, GPU_RESOURCES, METRICS_PORT
from cluster.kuberay_spec import POD_SECONDS
from cluster.ray_node import NodeResources
from infra import build_context, container_settings, node_settings, tools
from infra.hosts import go_programs
from infra.hosts.local import LocalHost
from infra.images import BUILT
from infra.node_settings import POD_FIELDS, NodeGroup
from infra.reader import Reader
from trainyard.access.kubectl import KUBECONFIG

KEY = "kubernetes"
SHARED = ("claim", "hostPath")
FIELDS = (
    "context",
    "kubeconfig",
    "namespace",
    "storageClass",
    "storageGib",
    "shared",
    "group",
    "pullSecrets",
    "cpuShare",
    "podTimeoutSeconds",
)
ACTION = f"write its fields: {', '.join(FIELDS)}"
# Names of Kubernetes: of a namespace, and of objects that may have dots.
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
TEXTS = {
    "context": (re.compile(r"\S.*"), "a context of the kubeconfig"),
    "namespace": (LABEL, "at most 63 lowercase letters, digits and hyphens"),
    "storageClass": (NAME, "the name of a StorageClass"),
}
STORAGE_GIB, GROUP = 20, 1000
MOST = {"storageGib": 1_000_000, "group": 2**31 - 1}
POD_SECONDS_RANGE = (60, 86_400)
# Of Kubernetes nodes: a label, which may have a domain, and its value; taints that are tolerated.
NODE_LABEL = re.compile(
    r"([a-z0-9][a-z0-9.-]{0,252}/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
OPERATORS = ("Equal", "Exists")
EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION = {
    "key": "a text",
    "operator": " or ".join(OPERATORS),
    "value": "a text",
    "effect": ", ".join(EFFECTS[1:]),
}
# The names of a stack's objects begin with its own; KubeRay appends to that of the cluster.
STACK = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")
# Ports of each pod that are not the settings': KubeRay's own, for Ray's agents.
TAKEN_PORTS = (METRICS_PORT, AGENT_PORT)
NO_PORTS_OF_PODS = ("agentPort", ray_cluster.NODE_SWITCH_PORT)
# Defaults of a worker: this machine's size says nothing about a pod's.
WORKER_CPUS, WORKER_MEMORY_MIB = 2, 8192


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """The place of a stack in a cluster.

    Attributes:
        context: of the kubeconfig.
        kubeconfig: path of that file, "" for the default of kubectl.
        namespace: of all objects.
        storage_class: of claims, "" for the cluster's default.
        storage_gib: size of each claim.
        claim: name of a claim that all Ray pods share, "" for none.
        host_path: folder of each node that they share instead, "" for none.
        group: group of the files in volumes.
        pull_secrets: names of the Secrets by which images are pulled.
        cpu_share: of the CPUs that Ray nodes offer, the share that is kept for them.
        pod_seconds: time that a pod of a group that grows may take until Ray runs in it.
    """

    context: str
    kubeconfig: str
    namespace: str
    storage_class: str
    storage_gib: int
    claim: str
    host_path: str
    group: int
    pull_secrets: tuple[str, ...]
    cpu_share: float
    pod_seconds: int

    @property
    def shared(self) -> bool:
        """Whether pods share a volume."""
        return bool(self.claim or self.host_path)


def read(reader: Reader) -> Kubernetes | None:
    """Return the place of the stack; None without the setting, or with faults in it."""
    given = reader.object(KEY, ACTION)
    before = len(reader.faults)
    if reader.raw.get("runtime", "").strip() == KEY:
        if not given.get("context"):
            bound = f"must be set with runtime = {KEY!r}"
            reader.fault(f"{KEY}.context", "", bound, "choose one: kubectl config get-contexts")
    elif given:
        bound = f"does nothing with runtime = {reader.raw.get('runtime')!r}"
        reader.fault(KEY, sorted(given), bound, f"set runtime to {KEY}, or remove {KEY}")
    for name, value in given.items():
        _check(reader, name, value)
    if not given or len(reader.faults) > before:
        return None
    shared = given.get("shared", {})
    return Kubernetes(
        context=given["context"],
        kubeconfig=given.get("kubeconfig", ""),
        namespace=given.get("namespace", "default"),
        storage_class=given.get("storageClass", ""),
        storage_gib=given.get("storageGib", STORAGE_GIB),
        claim=shared.get("claim", ""),
        host_path=shared.get("hostPath", ""),
        group=given.get("group", GROUP),
        pull_secrets=tuple(given.get("pullSecrets", ())),
        cpu_share=float(given.get("cpuShare", 1.0)),
        pod_seconds=given.get("podTimeoutSeconds", POD_SECONDS),
    )


def check(
    reader: Reader,
    values: Mapping[str, Any],
    stack: str,
    programs: Collection[str],
    *,
    nodes: Mapping[str, Mapping[str, Any]],
    ports: Mapping[str, int],
) -> None:
    """Note settings that conflict with a cluster.

    Args:
        reader: of the settings.
        values: other settings.
        stack: its name.
        programs: the ones that run, with all object stores.
        nodes: fields of the head and of each kind of workers, by their settings.
        ports: numbers by setting.
    """
    if values["runtime"] != KEY:
        _check_no_pods(reader, values["runtime"], nodes)
        return
    for key, fields in nodes.items():
        _check_pods(reader, key, fields, digests=values["require_digests"])
    _check_gpus(reader, values["accelerator"], nodes)
    _check_ports(reader, ports)
    if not STACK.fullmatch(stack):
        bound = "must be at most 30 lowercase letters, digits and hyphens after a letter: names "
        bound += "of Kubernetes begin with it"
        reader.fault("stack", stack, bound, "make a stack with such a name")
    others = services.STORES.keys() - {store(values["object_store"])}
    for program in sorted((set(programs) & set(BUILT)) - others - values["images"].keys()):
        bound = f"must be named with runtime = {KEY!r}: nothing is built there"
        action = f"build and push it: python -m infra.build_images REGISTRY {program} --push, and "
        action += f"write what that prints as images.{program} (docs/kubernetes.md)"
        if program == build_context.NOTEBOOK:
            action += "; or set notebook to false"
        reader.fault(f"images.{program}", "", bound, action)
    where: Kubernetes | None = values[KEY]
    data = values["dataset"]
    if data and data.archive:
        bound = "is a file of this machine, which pods do not have"
        reader.fault("dataset.archive", str(data.archive), bound, "use dataset.url")
    if data and where and not where.shared:
        bound = f"needs a volume that pods share: {KEY}.shared is not set"
        reader.fault("dataset", reader.fields("dataset"), bound, f"set {KEY}.shared")
    for service, limits in values["container_limits"].items():
        if isinstance(limits, Mapping) and "processes" in limits:
            bound = "is bounded by the kubelet (podPidsLimit)"
            key = f"containerLimits.{service}.processes"
            reader.fault(key, limits["processes"], bound, f"remove {key}")


def _check_no_pods(reader: Reader, runtime: str, nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Note fields of groups that only pods have."""
    for key, fields in nodes.items():
        for name in (name for name in POD_FIELDS if name in fields):
            bound = f"is of pods, and runtime = {runtime!r}"
            reader.fault(
                f"{key}.{name}", fields[name], bound, f"remove it, or set runtime to {KEY}"
            )


def _check_pods(reader: Reader, key: str, fields: Mapping[str, Any], *, digests: bool) -> None:
    """Note faults in the choice of nodes for a group's pods, and in their image."""
    if "image" in fields:
        image = fields["image"]
        container_settings.check_image(reader, f"{key}.image", image)
        if digests and isinstance(image, str):
            container_settings.check_digest(reader, f"{key}.image", image, f"write {image}")
    chosen = fields.get("nodeSelector", {})
    usable = isinstance(chosen, dict) and all(
        NODE_LABEL.fullmatch(name) and isinstance(value, str) and LABEL_VALUE.fullmatch(value)
        for name, value in chosen.items()
    )
    if not usable:
        bound = "must be an object of labels, all of them texts"
        action = 'write {label: "value"}; kubectl get nodes --show-labels lists them'
        reader.fault(f"{key}.nodeSelector", chosen, bound, action)
    taints = fields.get("tolerations", [])
    if not isinstance(taints, list) or not all(_is_toleration(each) for each in taints):
        fields_text = ", ".join(f"{name} ({choice})" for name, choice in TOLERATION.items())
        bound = f"must be an array of objects with {fields_text}"
        action = "write what the nodes' taints ask for: kubectl describe nodes"
        reader.fault(f"{key}.tolerations", taints, bound, action)


def _is_toleration(value: Any) -> bool:
    if not isinstance(value, dict) or not value or not value.keys() <= TOLERATION.keys():
        return False
    texts = all(isinstance(each, str) for each in value.values())
    choices = value.get("operator", "Equal") in OPERATORS and value.get("effect", "") in EFFECTS
    # The API refuses these: Exists has no value, and only Exists may be for any key.
    exists = value.get("operator") == "Exists"
    return texts and choices and ("value" not in value if exists else bool(value.get("key")))


def _check_gpus(reader: Reader, accelerator: str, nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Note GPUs whose pods would get none: Kubernetes hands them out by the name of their kind."""
    for key, fields in nodes.items():
        gpus = fields.get("gpus")
        if accelerator == "none" and isinstance(gpus, int | float) and gpus > 0:
            bound = f"must be 0 with runtime = {KEY!r} and accelerator = 'none': pods get no GPU"
            action = f"set accelerator to {' or '.join(GPU_RESOURCES)}, or remove {key}.gpus"
            reader.fault(f"{key}.gpus", gpus, bound, action)


def _check_ports(reader: Reader, ports: Mapping[str, int]) -> None:
    """Note ports of the head that KubeRay gives to Ray's agents, in each pod."""
    for setting in services.RAY.ports:
        port = ports[setting.key]
        if port in TAKEN_PORTS and setting.key not in NO_PORTS_OF_PODS:
            taken = " nor ".join(str(each) for each in TAKEN_PORTS)
            bound = f"must be neither {taken}: Ray's agents have these in each pod"
            reader.fault(setting.key, port, bound, f"set {setting.key} to another port")


def store(setting: str) -> str:
    """Return the name of the object store that runs."""
    return go_programs.DEFAULT if setting == tools.AUTO else setting


def workers(groups: Sequence[NodeGroup], devices: int) -> tuple[NodeResources, ...]:
    """Return the resources of each worker by group; a pod has the CPUs that it offers."""
    total = sum(group.count for group in groups)
    size = LocalHost(cpus=WORKER_CPUS * total, memory_mib=WORKER_MEMORY_MIB * total)
    found = node_settings.workers(groups, size, devices)
    return tuple(replace(node, threads=None) for node in found)


def _check(reader: Reader, name: str, value: Any) -> None:
    key = f"{KEY}.{name}"
    match name:
        case "context" | "namespace" | "storageClass":
            _check_text(reader, key, value, *TEXTS[name])
        case "storageGib" | "group":
            _check_whole(reader, key, value, 1, MOST[name])
        case "podTimeoutSeconds":
            _check_whole(reader, key, value, *POD_SECONDS_RANGE)
        case "kubeconfig":
            _check_kubeconfig(reader, key, value)
        case "shared":
            _check_shared(reader, key, value)
        case "pullSecrets" if isinstance(value, list):
            for each in value:
                _check_text(reader, key, each, NAME, "names of Secrets")
        case "pullSecrets":
            reader.fault(key, value, "must be an array", "write [NAME, …] of Secrets")
        case "cpuShare":
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 < value <= 1:
                reader.fault(key, value, "must be above 0, at most 1", "leave it out for 1")
        case _:
            reader.unknown(key, value, name, FIELDS)


def _check_text(reader: Reader, key: str, value: Any, pattern: re.Pattern[str], what: str) -> None:
    if not isinstance(value, str) or not value.isprintable() or not pattern.fullmatch(value):
        reader.fault(key, value, f"must be {what}", "write it as kubectl shows it")


def _check_whole(reader: Reader, key: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        bound = f"must be a whole number from {least} to {most}"
        reader.fault(key, value, bound, f"set {key} within it")


def _check_kubeconfig(reader: Reader, key: str, value: Any) -> None:
    usable = isinstance(value, str) and value.isprintable()
    if not usable or not Path(value).expanduser().is_absolute() or ".." in Path(value).parts:
        bound = "must be an absolute path, or begin with ~/"
        reader.fault(key, value, bound, f"write the path of the file; {KUBECONFIG} is the default")


def _check_shared(reader: Reader, key: str, value: Any) -> None:
    if not isinstance(value, dict) or len(value) != 1 or not set(value) <= set(SHARED):
        bound = f"must be an object with one of {', '.join(SHARED)}"
        reader.fault(key, value, bound, "write {claim: NAME} or {hostPath: /folder}")
    elif "claim" in value:
        _check_text(reader, f"{key}.claim", value["claim"], NAME, "the name of a claim")
    elif not isinstance(value["hostPath"], str):
        reader.fault(f"{key}.hostPath", value["hostPath"], "must be a text", "write a path")
    else:
        reader.check_path(f"{key}.hostPath", value["hostPath"])
