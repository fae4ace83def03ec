"""Values for KubeRay's chart `ray-cluster` that give our RayCluster, within the chart's limits.

Settings that the chart has no value for are named, never dropped: after the known parts of the
manifest are taken, the rest is reported by path.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.kuberay import CLUSTER_LABEL, TOKEN_KEY
from cluster.kuberay_pods import API_ACCESS

CHART = "kuberay/ray-cluster"
VERSION = "1.6.2"  # that tests install
# Labels of pods that the chart writes itself; a second one of the same name breaks its YAML.
CHARTS_LABELS = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
)
# Values of a group by the field of a pod or of its first container.
POD_VALUES = {
    "initContainers": "initContainers",
    "volumes": "volumes",
    "nodeSelector": "nodeSelector",
    "tolerations": "tolerations",
    "securityContext": "podSecurityContext",
}
CONTAINER_VALUES = {
    "env": "containerEnv",
    "envFrom": "envFrom",
    "ports": "ports",
    "resources": "resources",
    "securityContext": "securityContext",
    "volumeMounts": "volumeMounts",
}
AUTH = "authOptions"
TOKENS = (
    f"{AUTH}: the values set Ray's own variables from the same Secret in its place; `helm upgrade` "
    "with other values must keep them: without them, anyone who reaches the head can run code"
)
SIZES = (
    "replicas: `helm upgrade` gives groups that grow their least size again; Ray's autoscaler then "
    "starts what jobs need"
)
WHY = {
    "upgradeStrategy": "after `helm upgrade`, pods keep their old image and settings until they "
    f"are deleted: kubectl delete pod -l {CLUSTER_LABEL}=NAME",
    "template.spec.automountServiceAccountToken": "jobs on the head can use the autoscaler's token "
    "for the API of Kubernetes, and others their namespace's",
    "template.spec.terminationGracePeriodSeconds": "a pod has 30 s to end, also "
    "for the drain of its node",
    "labels": "jobs cannot ask for nodes by the label `group`",
    "idleTimeoutSeconds": "all groups get the longest of their timeouts",
    "metadata.labels": "the chart labels the RayCluster itself; pods have these labels",
    "template.metadata.labels": "the chart sets these itself",
}


def helm_values(manifest: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return values of the chart for a RayCluster, and a line for each setting that they lack."""
    left = copy.deepcopy(dict(manifest))
    spec: dict[str, Any] = left.pop("spec")
    missing = _Missing()
    token: list[dict[str, Any]] = []
    if AUTH in spec:
        token = _token(spec.pop(AUTH)["secretName"])
        missing.note(TOKENS)
    cluster = _cluster(spec, token)
    images: dict[str, Any] = {}
    head = cluster | _group(spec.pop("headGroupSpec"), token, images, missing.for_group("head"))
    groups: dict[str, Any] = {}
    for group in spec.pop("workerGroupSpecs"):
        name = group.pop("groupName")
        least = group.pop("minReplicas")
        size = {
            "replicas": group.pop("replicas", least),
            "minReplicas": least,
            "maxReplicas": group.pop("maxReplicas"),
        }
        groups[name] = size | _group(group, token, images, missing.for_group(name))
    if "autoscalerOptions" in cluster:
        missing.note(SIZES)
    missing.note_all(spec)
    missing.note_all({"metadata": {"labels": left["metadata"]["labels"]}})
    first, *others = groups.items() or [("", None)]
    values = {
        "fullnameOverride": left["metadata"]["name"],
        **images,
        "head": head,
        "worker": {"groupName": first[0], **first[1]} if first[1] else {"disabled": True},
        "additionalWorkerGroups": dict(others),
    }
    return values, missing.lines


@dataclass
class _Missing:
    """The settings that the chart has no value for, and the groups that have them."""

    found: dict[str, list[str]] = field(default_factory=dict)
    group: str = ""

    def for_group(self, group: str) -> "_Missing":
        return _Missing(self.found, group)

    def note(self, line: str) -> None:
        groups = self.found.setdefault(line, [])
        if self.group:
            groups.append(self.group)

    def note_all(self, left: Mapping[str, Any], path: str = "") -> None:
        for key, value in left.items():
            here = f"{path}{key}"
            if here not in WHY and isinstance(value, dict):
                self.note_all(value, f"{here}.")
            else:
                self.note(f"{here}: {WHY.get(here, 'the chart has no value for it')}")

    @property
    def lines(self) -> list[str]:
        return [
            f"{line} ({', '.join(groups)})" if groups else line
            for line, groups in self.found.items()
        ]


def _token(secret: str) -> list[dict[str, Any]]:
    """Return the variables that KubeRay makes from `authOptions`."""
    key = {"secretKeyRef": {"name": secret, "key": TOKEN_KEY}}
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": key},
    ]


def _cluster(spec: dict[str, Any], token: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the values of `head` that are the cluster's."""
    found: dict[str, Any] = {"rayVersion": spec.pop("rayVersion")}
    if spec.pop("enableInTreeAutoscaling", False):
        options = spec.pop("autoscalerOptions")
        # With the chart, Kubernetes mounts this itself.
        options.pop("volumeMounts", None)
        idle = [group.get("idleTimeoutSeconds", 0) for group in spec["workerGroupSpecs"]]
        options |= {"idleTimeoutSeconds": max(idle), "env": [*options.get("env", []), *token]}
        found |= {"enableInTreeAutoscaling": True, "autoscalerOptions": options}
    return found


def _group(
    group: dict[str, Any],
    token: Sequence[dict[str, Any]],
    images: dict[str, Any],
    missing: _Missing,
) -> dict[str, Any]:
    """Return the values of head or workers, and note settings without one."""
    template = group["template"]
    pod, metadata = template["spec"], template["metadata"]
    (container,) = pod.pop("containers")
    container.pop("name")  # the chart has the same
    found: dict[str, Any] = {"rayStartParams": group.pop("rayStartParams")}
    image = _image(container.pop("image"), container.pop("imagePullPolicy"))
    if images.setdefault("image", image) != image:
        found["image"] = image
    if secrets := pod.pop("imagePullSecrets", []):
        images["imagePullSecrets"] = secrets
    labels = metadata.pop("labels")
    found["labels"] = {key: each for key, each in labels.items() if key not in CHARTS_LABELS}
    if taken := {key: each for key, each in labels.items() if key in CHARTS_LABELS}:
        metadata["labels"] = taken
    if "annotations" in metadata:
        found["annotations"] = metadata.pop("annotations")
    found |= _taken(pod, POD_VALUES) | _taken(container, CONTAINER_VALUES)
    if "volumes" in found:
        found["volumes"] = [each for each in found["volumes"] if each["name"] != API_ACCESS]
    # The cluster's own variables take precedence; KubeRay sets only missing ones.
    ours = {each["name"] for each in token}
    others = [each for each in found.get("containerEnv", []) if each["name"] not in ours]
    found["containerEnv"] = [*others, *token]
    missing.note_all(group)
    missing.note_all(container, "template.spec.containers[0].")
    return found


def _image(reference: str, pull_policy: str) -> dict[str, str]:
    """Return a reference as the chart joins it: `repository:tag`, also with a digest."""
    repository, _, tag = reference.rpartition(":")
    if not repository or "/" in tag:
        repository, tag = reference, "latest"
    return {"repository": repository, "tag": tag, "pullPolicy": pull_policy}


def _taken(fields: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[field]: fields.pop(field) for field in names if field in fields}
