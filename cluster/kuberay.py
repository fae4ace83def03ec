"""A Ray cluster on Kubernetes, as KubeRay's operator takes it: manifests from plain values.

Deliberately absent: Pulumi, a client of Kubernetes, and settings that others own once the cluster
exists. `replicas` of groups that grow, and `scaleStrategy`, are the autoscaler's. Start commands,
probes, the head's service and the autoscaler's rights are the operator's.

Every pod has a network of its own, so agents and metrics have KubeRay's own ports.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from cluster import autoscaling, kuberay_pods, kuberay_spec, ray_node
from cluster.kuberay_spec import RayClusterSpec, WorkerGroup
from cluster.ray_node import MIB, NodeResources

# The oldest KubeRay that a stack works with, and fields of its CRD that some older ones lack: an
# operator silently drops unknown fields, Ray's token too.
OLDEST = "1.6.2"
NEEDED = (("spec", "authOptions", "secretName"), ("spec", "upgradeStrategy", "type"))
# The field that tells Ray's autoscaler of a port of the head that is not KubeRay's own, and the
# first version that has it.
ARGS, ARGS_SINCE = ("spec", "autoscalerOptions", "args"), "1.7.0"
GCS_PORT = 6379

API_VERSION = "ray.io/v1"
KIND = "RayCluster"
TOKEN_KEY = "auth_token"  # noqa: S105 (a key of a Secret, by which KubeRay finds the token)
RECOMMENDED = "app.kubernetes.io/"  # prefix of the labels that Kubernetes recommends
# KubeRay's, on each pod.
CLUSTER_LABEL, TYPE_LABEL, GROUP_LABEL = "ray.io/cluster", "ray.io/node-type", "ray.io/group"
# Kueue's, on the RayCluster.
QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
FORM = "trainyard/form"  # annotation of each pod: digest of the values that pods are made from
# Fields of a worker group whose change leaves its pods running (upgradeStrategy Recreate).
KEPT_FOR = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")


def tells_port(*, grows: bool, gcs: int) -> bool:
    """Return whether a cluster needs ARGS, by its autoscaler and the port of its head."""
    return grows and gcs != GCS_PORT


def head_service(name: str) -> str:
    """Return the name of the service that KubeRay makes for the head of a cluster."""
    return f"{name}-head-svc"


def head_pods(name: str) -> dict[str, str]:
    """Return the labels of the head's pod of a cluster."""
    return {CLUSTER_LABEL: name, TYPE_LABEL: "head"}


def made_from(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a RayCluster's spec that its pods are made from: changes recreate them."""
    spec = {key: value for key, value in found["spec"].items() if key != "upgradeStrategy"}
    groups = spec.get("workerGroupSpecs") or []  # somebody may have removed them all
    return {**spec, "workerGroupSpecs": [_fixed(group) for group in groups]}


def _fixed(group: Mapping[str, Any]) -> dict[str, Any]:
    template = group["template"]
    pod = {key: value for key, value in template["spec"].items() if key != "tolerations"}
    kept = {key: value for key, value in group.items() if key not in KEPT_FOR}
    return {**kept, "template": {**template, "spec": pod}}


def mark_form(found: dict[str, Any]) -> None:
    """Write a digest of `made_from` into a RayCluster's pods, to tell newer pods apart.

    The status does not tell: KubeRay writes `observedGeneration` only with another change.
    """
    text = json.dumps(made_from(found), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    for _, template, _ in templates(found):
        template.setdefault("metadata", {}).setdefault("annotations", {})[FORM] = digest


def form(made: Mapping[str, Any]) -> str | None:
    """Return the digest in a pod, or in a template of pods; None without one."""
    return ((made.get("metadata") or {}).get("annotations") or {}).get(FORM)


def templates(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield name, template and least number of pods for a RayCluster's head and each group."""
    spec = found["spec"]
    yield kuberay_spec.HEAD_GROUP, spec["headGroupSpec"]["template"], 1
    for group in spec.get("workerGroupSpecs") or []:
        yield group["groupName"], group["template"], group.get("minReplicas", 0)


def head_ports(found: Mapping[str, Any]) -> dict[str, int]:
    """Return the ports of a RayCluster's head, by name."""
    ray, *_ = found["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    return {port["name"]: port["containerPort"] for port in ray.get("ports") or []}


def ray_cluster(spec: RayClusterSpec) -> dict[str, Any]:
    """Return the RayCluster."""
    found: dict[str, Any] = {
        "rayVersion": spec.ray_version,
        "authOptions": {"mode": "token", "secretName": spec.token_secret},
        # Otherwise KubeRay leaves pods as they are when their image or their settings change.
        "upgradeStrategy": {"type": "Recreate"},
        "headGroupSpec": {
            "rayStartParams": {
                **_start_parameters(spec.head),
                "port": str(spec.ports["gcsPort"]),
                "dashboard-port": str(spec.ports["dashboardPort"]),
                "ray-client-server-port": str(spec.ports["rayClientPort"]),
            },
            "template": kuberay_pods.head_template(spec),
        },
        "workerGroupSpecs": [_group(spec, group) for group in spec.groups],
    }
    if spec.grows:
        found |= {"enableInTreeAutoscaling": True, "autoscalerOptions": _autoscaler(spec)}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": _metadata(spec.name, spec.namespace, {**spec.labels, **spec.queue_labels}),
        "spec": found,
    }


def network_policy(name: str, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the policy by which only a stack's own pods, by their labels, reach its pods.

    Ray opens ports by which anyone with its token can run code. `kubectl port-forward` and the
    kubelet's probes come from a pod's own node, so they pass.
    """
    # Helm and others write labels of this kind themselves.
    own = {key: each for key, each in labels.items() if not key.startswith(RECOMMENDED)}
    pods = {"matchLabels": dict(sorted(own.items()))}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(name, namespace, labels),
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": pods}]}],
        },
    }


def head_budget(name: str, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the budget that keeps `kubectl drain` from ending a head, and with it all jobs."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(f"{name}-head", namespace, labels),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": head_pods(name)}},
    }


def _metadata(name: str, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": dict(sorted(labels.items()))}


def _start_parameters(node: NodeResources) -> dict[str, str]:
    found = {
        "num-cpus": f"{node.cpus:g}",
        "num-gpus": f"{node.gpus:g}",
        "memory": str(node.memory_mib * MIB),
        "object-store-memory": str(node.object_store_mib * MIB),
        # Otherwise Ray keeps 10002 to 19999 for workers, and ends if one of our ports is in there.
        "min-worker-port": "0",
        "max-worker-port": "0",
    }
    if node.resources:
        # bash removes one pair of quotes, and Ray's autoscaler does so by hand.
        found["resources"] = f"'{json.dumps(dict(node.resources), sort_keys=True)}'"
    return found


def _group(spec: RayClusterSpec, group: WorkerGroup) -> dict[str, Any]:
    growth = group.node.growth
    found: dict[str, Any] = {
        "groupName": group.name,
        "minReplicas": group.count if growth is None else growth.least,
        "maxReplicas": group.count,
        "rayStartParams": _start_parameters(group.node),
        "template": kuberay_pods.worker_template(spec, group),
    }
    if not spec.grows:
        found["replicas"] = group.count  # otherwise the autoscaler's
    if growth is not None:
        found["idleTimeoutSeconds"] = math.ceil(growth.idle_seconds)
    if group.node.group:
        found["labels"] = {ray_node.GROUP_LABEL: group.node.group}
    return found


def _autoscaler(spec: RayClusterSpec) -> dict[str, Any]:
    found = {
        "version": "v2",
        "imagePullPolicy": kuberay_pods.PULL_POLICY,
        "env": [
            # Ray's own 5 s are too long: an idle worker's pod ends with its Ray, and the operator
            # makes another one before the autoscaler has said that it wants one less.
            {"name": "AUTOSCALER_UPDATE_INTERVAL_S", "value": str(autoscaling.UPDATE_SECONDS)},
            {"name": "AUTOSCALER_METRIC_PORT", "value": str(spec.ports["autoscalerMetricsPort"])},
            # Ray counts a pod that no node has room for as room for the next jobs, for an hour.
            {"name": autoscaling.PENDING, "value": str(autoscaling.PENDING_SECONDS)},
            {"name": autoscaling.STARTING, "value": str(spec.pod_seconds)},
        ],
        "resources": {
            "requests": {"cpu": kuberay_spec.cpu_quantity(0.5 * spec.cpu_share), "memory": "512Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "securityContext": dict(kuberay_pods.CONTAINER_SECURITY),
        # Only it may call the API: a job on the head must not be able to change the cluster.
        "volumeMounts": [kuberay_pods.API_ACCESS_MOUNT],
    }
    if tells_port(grows=True, gcs=spec.ports["gcsPort"]):
        address = f"127.0.0.1:{spec.ports['gcsPort']}"
        found["args"] = [f"$KUBERAY_GEN_AUTOSCALER_START_CMD --gcs-address={address}"]
    return found
