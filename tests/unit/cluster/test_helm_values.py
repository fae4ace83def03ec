"""Values for KubeRay's chart: the chart has each of them, and missing ones are named."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from cluster import kuberay
from cluster.helm_values import helm_values
from tests.unit.cluster.test_kuberay import FIXED, FULL, GPU, SPEC

# Of chart ray-cluster 1.7.0, what its templates read; None stands for whatever Kubernetes takes.
IMAGE = {"repository": None, "tag": None, "pullPolicy": None}
FIELDS = """
affinity annotations args command containerEnv dnsConfig envFrom initContainers labels lifecycle
nodeSelector podSecurityContext ports priority priorityClassName rayStartParams resourceClaims
resources restartPolicy runtimeClassName securityContext serviceAccountName sidecarContainers
tolerations topologySpreadConstraints volumeMounts volumes
"""
POD = dict.fromkeys(FIELDS.split())
POD |= {"image": IMAGE}
HEAD = POD | dict.fromkeys(("rayVersion", "enableInTreeAutoscaling", "headService"))
HEAD |= {"autoscalerOptions": None}
GROUP = POD | dict.fromkeys(("disabled", "replicas", "minReplicas", "maxReplicas", "numOfHosts"))
CHART: dict[str, Any] = {
    "annotations": None,
    "common": {"containerEnv": None},
    "fullnameOverride": None,
    "gcsFaultTolerance": None,
    "head": HEAD,
    "image": IMAGE,
    "imagePullSecrets": None,
    "nameOverride": None,
    "service": {"type": None},
    "worker": GROUP | {"groupName": None},
}


def _unknown(values: Any, known: Any, path: str = "") -> list[str]:
    """Paths of values that the chart would silently drop."""
    if known is None:
        return []
    found = []
    for key, value in values.items():
        if key in known:
            found += _unknown(value, known[key], f"{path}{key}.")
        else:
            found.append(f"{path}{key}")
    return found


@pytest.mark.parametrize("spec", [SPEC, FULL, replace(SPEC, groups=[])])
def test_the_chart_knows_each_value(spec):
    values, _ = helm_values(kuberay.ray_cluster(spec))
    for group in values.pop("additionalWorkerGroups").values():
        assert _unknown(group, GROUP) == []
    assert _unknown(values, CHART) == []


def test_groups_have_the_pods_of_the_manifest():
    cluster = kuberay.ray_cluster(FULL)["spec"]
    values, _ = helm_values(kuberay.ray_cluster(FULL))
    assert values["worker"]["groupName"] == "worker"
    assert [*values["additionalWorkerGroups"]] == ["gpu", "tpu"]
    gpu, wanted = values["additionalWorkerGroups"]["gpu"], cluster["workerGroupSpecs"][1]
    assert (gpu["replicas"], gpu["minReplicas"], gpu["maxReplicas"]) == (0, 0, 4)
    assert gpu["rayStartParams"] == wanted["rayStartParams"]
    pod = wanted["template"]["spec"]
    for value, field in (("volumes", "volumes"), ("podSecurityContext", "securityContext")):
        assert gpu[value] == pod[field]
    for field in ("resources", "securityContext", "volumeMounts", "ports"):
        assert gpu[field] == pod["containers"][0][field]
    assert gpu["nodeSelector"] == {"gpu": "h100"}


def test_tokens_are_asked_for_without_authoptions():
    values, missing = helm_values(kuberay.ray_cluster(FULL))
    key = {"name": "trainyard-lab-token", "key": "auth_token"}
    token = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": key}}
    for variables in (
        values["head"]["containerEnv"],
        values["head"]["autoscalerOptions"]["env"],
        values["worker"]["containerEnv"],
        values["additionalWorkerGroups"]["gpu"]["containerEnv"],
    ):
        assert token in variables
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in variables
    assert any(line.startswith("authOptions: ") for line in missing)


def test_what_the_chart_cannot_say_is_named():
    _, missing = helm_values(kuberay.ray_cluster(FULL))
    assert [line.partition(":")[0] for line in missing] == [
        "authOptions",
        "template.spec.automountServiceAccountToken",
        "template.spec.terminationGracePeriodSeconds",
        "idleTimeoutSeconds",
        "labels",
        "replicas",
        "upgradeStrategy",
        "metadata.labels",
    ]
    assert any(line.startswith("labels: ") and line.endswith("(gpu, tpu)") for line in missing)


def test_a_field_that_nobody_thought_of_is_named():
    cluster = kuberay.ray_cluster(SPEC)
    cluster["spec"]["headGroupSpec"]["template"]["spec"]["hostNetwork"] = True
    _, missing = helm_values(cluster)
    assert "template.spec.hostNetwork: the chart has no value for it (head)" in missing


def test_a_label_that_the_chart_writes_is_not_written_twice():
    labels = {**SPEC.labels, "app.kubernetes.io/managed-by": "trainyard"}
    values, missing = helm_values(kuberay.ray_cluster(replace(SPEC, labels=labels)))
    assert values["head"]["labels"] == dict(sorted(SPEC.labels.items()))
    assert any(line.startswith("template.metadata.labels: ") for line in missing)
    policy = kuberay.network_policy("lab", "ml", labels)["spec"]["podSelector"]["matchLabels"]
    assert policy.items() <= values["head"]["labels"].items()  # it still guards these pods


@pytest.mark.parametrize(
    ("image", "repository", "tag"),
    [
        ("registry.example:5000/ray:1", "registry.example:5000/ray", "1"),
        ("registry.example:5000/ray", "registry.example:5000/ray", "latest"),
        ("registry.example/ray@sha256:ab12", "registry.example/ray@sha256", "ab12"),
    ],
)
def test_the_chart_joins_images_to_what_they_were(image, repository, tag):
    values, _ = helm_values(kuberay.ray_cluster(replace(SPEC, image=image)))
    assert (values["image"]["repository"], values["image"]["tag"]) == (repository, tag)


def test_a_group_may_have_an_image_of_its_own():
    groups = [FIXED, replace(GPU, image="registry.example/ray-cuda:1")]
    values, _ = helm_values(kuberay.ray_cluster(replace(SPEC, groups=groups)))
    assert "image" not in values["worker"]
    own = values["additionalWorkerGroups"]["gpu"]["image"]
    assert own["repository"] == "registry.example/ray-cuda"


def test_the_manifest_is_left_as_it_was():
    cluster = kuberay.ray_cluster(FULL)
    before = yaml.safe_dump(cluster)
    helm_values(cluster)
    assert yaml.safe_dump(cluster) == before
