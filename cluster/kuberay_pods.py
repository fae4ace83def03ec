"""The pods of a Ray cluster on Kubernetes: templates, which KubeRay's operator completes."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster import ray_node
from cluster.kuberay_spec import (
    SECRET_MODE,
    USER,
    Mount,
    Packages,
    RayClusterSpec,
    WorkerGroup,
    cpu_quantity,
    memory,
    memory_quantity,
)
from cluster.ray_node import NodeResources
from node import packages

PACKAGES = "packages"  # name of the container that installs them
METRICS_PORT, AGENT_PORT = 8080, 52365  # KubeRay's, on each pod
GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}  # by accelerator
# CPUs kept for the head's own processes, and their limit, on top of those that it offers to jobs.
HEAD_CPUS, HEAD_CPUS_LIMIT = 1.0, 2.0
STOP_SECONDS = 5  # before a pod's end: runs continue from their checkpoints
# Ray drains its node for so long when its pod is told to end; by default for 30 s.
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
PULL_POLICY = "IfNotPresent"  # images have a tag or a digest that stays
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (where Ray keeps objects)
API_ACCESS = "api-access"  # name of a volume
API_ACCESS_MOUNT: Mapping[str, Any] = {
    "name": API_ACCESS,
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",  # where Ray's autoscaler looks
    "readOnly": True,
}
TOKEN_SECONDS = 3607  # of the autoscaler's token for the API, which the kubelet renews
# Ends a pod that could not keep results, and says what to do; its arguments: folder, group.
CHECK_SHARED = (
    'test -w "$1" || { echo "The shared volume $1 is not writable for user $(id -u), group $2: '
    'give its folder this group and the mode 2775" >&2; exit 1; }'
)
# All that Kubernetes' profile "restricted" asks for.
CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def head_template(spec: RayClusterSpec) -> dict[str, Any]:
    """Return the template of the head's pod."""
    node = spec.head
    resources = _resources(
        spec,
        node,
        cpus=(node.cpus + HEAD_CPUS, node.cpus + HEAD_CPUS_LIMIT),
        memory_mib=(ray_node.memory_limit_mib(node), ray_node.head_memory_limit_mib(node)),
    )
    container = {
        **_container("ray-head", spec.image, resources, spec.head_environment),
        # The head's service gets these ports, by these names.
        "ports": [
            {"name": "client", "containerPort": spec.ports["rayClientPort"]},
            {"name": "dashboard", "containerPort": spec.ports["dashboardPort"]},
            {"name": "gcs-server", "containerPort": spec.ports["gcsPort"]},
            {"name": "metrics", "containerPort": METRICS_PORT},
            {"name": "serve", "containerPort": spec.ports["servePort"]},
        ],
    }
    template = _template(spec, container, node, [*spec.mounts, *spec.head_mounts])
    if spec.grows:
        template["spec"]["volumes"].append(api_access())
    return template


def worker_template(spec: RayClusterSpec, group: WorkerGroup) -> dict[str, Any]:
    """Return the template of a group's pods."""
    node, image = group.node, group.image or spec.image
    cpus, memory = max(node.cpus, 1.0), ray_node.memory_limit_mib(node)
    resources = _resources(spec, node, cpus=(cpus, cpus), memory_mib=(memory, memory))
    variables = {**spec.worker_environment, DRAIN: str(spec.drain_seconds)}
    container = {
        **_container("ray-worker", image, resources, variables),
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
    }
    template = _template(spec, container, node, spec.mounts)
    # Whoever ends a pod, such as a smaller group, an eviction or `kubectl drain`, waits for it.
    template["spec"]["terminationGracePeriodSeconds"] += spec.drain_seconds
    if group.node_selector:
        template["spec"]["nodeSelector"] = dict(sorted(group.node_selector.items()))
    if group.tolerations:
        template["spec"]["tolerations"] = [dict(each) for each in group.tolerations]
    return template


def api_access() -> dict[str, Any]:
    """Return a volume with the files that Kubernetes would give to each container of a pod."""
    return {
        "name": API_ACCESS,
        "projected": {
            "defaultMode": SECRET_MODE,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {
                    "downwardAPI": {
                        "items": [
                            {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
                        ]
                    }
                },
            ],
        },
    }


def pod_security(user: int, group: int) -> dict[str, Any]:
    """Return how a pod runs: not as root, and with files of its group in its volumes."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": group,
        # A volume with many files is looked through once, not at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _resources(
    spec: RayClusterSpec,
    node: NodeResources,
    *,
    cpus: tuple[float, float],
    memory_mib: tuple[int, int],
) -> dict[str, Any]:
    """Return requests and limits; each pair has the pod's request, then its limit."""
    devices = {}
    if node.gpus and (device := GPU_RESOURCES.get(spec.accelerator)):
        devices[device] = f"{node.gpus:g}"
    return {
        "requests": {
            "cpu": cpu_quantity(cpus[0] * spec.cpu_share),
            "memory": memory_quantity(memory_mib[0]),
            **devices,
        },
        "limits": {
            "cpu": cpu_quantity(cpus[1]),
            "memory": memory_quantity(memory_mib[1]),
            **devices,
        },
    }


def _container(
    name: str,
    image: str,
    resources: dict[str, Any],
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": PULL_POLICY,
        "env": [{"name": key, "value": value} for key, value in sorted(environment.items())],
        "resources": resources,
        "securityContext": dict(CONTAINER_SECURITY),
    }


def _template(
    spec: RayClusterSpec, container: dict[str, Any], node: NodeResources, mounts: Sequence[Mount]
) -> dict[str, Any]:
    # KubeRay's own has the size of all the pod's memory.
    shared = memory("shared-mem", SHARED_MEMORY, ray_node.shared_memory_mib(node))
    mounts = [shared, *mounts]
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "securityContext": pod_security(USER, spec.group),
        "containers": [{**container, "volumeMounts": [each.mount for each in mounts]}],
        # Two mounts may be of one volume.
        "volumes": [*{mount.name: mount.volume for mount in mounts}.values()],
    }
    if spec.shared:
        volume = next(mount for mount in mounts if mount.path == spec.shared)
        pod["initContainers"] = [_check_shared(spec, container["image"], volume)]
    if spec.environment_secret:
        pod["containers"][0]["envFrom"] = [{"secretRef": {"name": spec.environment_secret}}]
    if spec.packages:
        install = _install(spec, spec.packages, pod["containers"][0])
        pod["initContainers"] = [*pod.get("initContainers", []), install]
    if spec.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.pull_secrets]
    metadata: dict[str, Any] = {"labels": dict(sorted(spec.labels.items()))}
    if spec.annotations:
        metadata["annotations"] = dict(sorted(spec.annotations.items()))
    return {"metadata": metadata, "spec": pod}


def _install(
    spec: RayClusterSpec, wanted: Packages, container: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the container that brings a pod what its image lacks, like the pod's own."""
    kept = ("image", "imagePullPolicy", "resources", "securityContext", "volumeMounts")
    tag = f"rayproject/ray:{spec.ray_version}-py{wanted.python.replace('.', '')}"
    advice = f"set kubernetes.image (or the group's image) to one such as {tag}"
    arguments = [wanted.module, spec.ray_version, wanted.python, advice]
    return {
        "name": PACKAGES,
        **{key: container[key] for key in kept},
        "command": ["/bin/sh", "-c", packages.START, "sh", *arguments],
        "env": [{"name": packages.BASE, "value": wanted.folder}],
    }


def _check_shared(spec: RayClusterSpec, image: str, volume: Mount) -> dict[str, Any]:
    small = {"cpu": "100m", "memory": "64Mi"}
    return {
        "name": "shared-volume",
        "image": image,
        "imagePullPolicy": PULL_POLICY,
        "command": ["/bin/sh", "-c", CHECK_SHARED, "sh", volume.path, str(spec.group)],
        "resources": {"requests": small, "limits": small},
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [volume.mount],
    }
