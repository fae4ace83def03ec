"""One message reports all that a cluster lacks, before anything is made."""

from pathlib import Path
from unittest.mock import Mock

import httpx2
import pytest
import yaml

from infra.places.kubernetes import api, preflight
from infra.places.kubernetes.api import KubernetesError
from trainyard.access.kubectl import Cluster

CRD = ("customresourcedefinitions", "rayclusters.ray.io")


def _crd(*paths, version="v1"):
    schema = {}
    for path in paths:
        part = schema
        for name in path.split("."):
            part = part.setdefault("properties", {}).setdefault(name, {})
    schema = {"openAPIV3Schema": schema}
    return {"spec": {"versions": [{"name": version, "served": True, "schema": schema}]}}


def _check(cluster, *, grows=True, gcs=6379, ends=False, queue="", priority=""):
    return preflight.check(cluster, grows=grows, gcs=gcs, ends=ends, queue=queue, priority=priority)


OLDEST = ("spec.authOptions.secretName", "spec.upgradeStrategy.type")  # 1.6.2
NEWER = (*OLDEST, "spec.autoscalerOptions.args")  # 1.7


def _operator(image):
    """The Deployment of an operator."""
    spec = {"containers": [{"image": "proxy:v0.1.0"}, {"image": image}]}
    metadata = {"namespace": "kuberay-system", "name": "kuberay-operator"}
    return {"metadata": metadata, "spec": {"template": {"spec": spec}}}


@pytest.fixture
def ready(fake):
    """A cluster that has all."""
    fake.objects["namespaces", "team"] = {"metadata": {"name": "team"}, "status": {}}
    fake.objects[CRD] = _crd(*OLDEST)
    return fake


def test_all_faults_are_in_one_message_with_the_helm_commands(fake, cluster):
    fake.allowed = lambda asked: asked["resource"] != "secrets"
    with pytest.raises(KubernetesError) as error:
        _check(cluster)
    said = str(error.value)
    assert "namespace team does not exist: kubectl --context lab create namespace team" in said
    assert "helm upgrade --install kuberay-operator kuberay/kuberay-operator" in said
    assert "may not get, create, patch, delete secrets in namespace team" in said


def test_only_a_reservation_needs_the_right_to_give_rights(ready, cluster):  # D3
    ready.allowed = lambda asked: "rbac" not in asked["group"]
    assert _check(cluster) == "cluster-1"  # its own id
    with pytest.raises(KubernetesError) as error:
        _check(cluster, ends=True)
    assert "get, create, patch, delete roles.rbac.authorization.k8s.io" in str(error.value)


@pytest.mark.parametrize(
    ("crd", "said"),
    [
        (_crd(*OLDEST, version="v1alpha1"), "has no version v1"),
        (_crd("spec.upgradeStrategy.type"), "it lacks spec.authOptions.secretName"),
        (_crd("spec.authOptions.mode", OLDEST[1]), "it lacks spec.authOptions.secretName"),
    ],
)
def test_an_old_crd_is_told_from_none(ready, cluster, crd, said):
    ready.objects[CRD] = crd
    with pytest.raises(KubernetesError) as error:
        _check(cluster)
    assert said in str(error.value)
    assert "kubectl apply --server-side" in str(error.value)


def test_another_port_of_the_head_needs_a_newer_kuberay_where_a_group_grows(ready, cluster):
    with pytest.raises(KubernetesError) as error:
        _check(cluster, gcs=6400)
    said = str(error.value)
    assert "lacks spec.autoscalerOptions.args" in said
    assert "set gcsPort to 6379, or update KubeRay to 1.7.0 or later" in said
    assert "kubectl apply --server-side" in said
    assert _check(cluster, grows=False, gcs=6400)
    ready.objects[CRD] = _crd(*NEWER)
    assert _check(cluster, gcs=6400)


def test_a_queue_and_a_class_that_kueue_does_not_know_are_told(ready, cluster):
    with pytest.raises(KubernetesError) as error:
        _check(cluster, queue="team", priority="high")
    for said in (
        "kubernetes.queue = 'team': no LocalQueue of that name in namespace team",
        "kubectl --context lab get localqueues -n team`, or remove it",
        "kubernetes.priorityClass = 'high': Kueue has no WorkloadPriorityClass of that name",
    ):
        assert said in str(error.value)
    ready.objects["localqueues", "team"] = ready.objects["workloadpriorityclasses", "high"] = {}
    assert _check(cluster, queue="team", priority="high")


@pytest.mark.parametrize(
    ("image", "gcs", "said"),
    [
        ("quay.io/kuberay/operator:v1.6.1", 6379, "a stack needs 1.6.2 or later"),
        ("quay.io/kuberay/operator:v1.6.2", 6400, "gcsPort = 6400 needs 1.7.0 or later"),
        ("quay.io/kuberay/operator:v1.6.2", 6379, ""),
        ("quay.io/kuberay/operator:v1.7.0", 6400, ""),
        ("registry.example:5000/kuberay-operator:1.10.0@sha256:0", 6400, ""),
        ("quay.io/kuberay/operator:nightly", 6400, ""),
    ],
)
def test_an_operator_that_is_older_than_its_crd_is_told(ready, cluster, image, gcs, said):
    ready.objects[CRD] = _crd(*NEWER)
    ready.objects["deployments", "kuberay-operator"] = _operator(image)
    if not said:
        assert _check(cluster, gcs=gcs)
        return
    with pytest.raises(KubernetesError) as error:
        _check(cluster, gcs=gcs)
    assert f"Deployment kuberay-system/kuberay-operator, is {image}; {said}" in str(error.value)
    assert "helm upgrade --install" in str(error.value)


def test_an_operator_that_this_user_may_not_see_is_not_missed(ready, cluster):
    answer = ready.answer

    def refuse(request):
        if request.url.path == "/apis/apps/v1/deployments":
            return httpx2.Response(403, json={"kind": "Status", "code": 403, "message": "no"})
        return answer(request)

    ready.answer = refuse
    api.open_api.cache_clear()
    assert _check(cluster)


def test_a_context_that_is_not_there_names_those_that_are(cluster):
    other = Cluster(kubeconfig=cluster.kubeconfig, context="prod", namespace="team")
    with pytest.raises(KubernetesError, match=r"no such context \(there: lab\)"):
        _check(other)


def test_a_kubeconfig_that_cannot_be_read_is_one_message(tmp_path):
    for text in ("", "[", "- a"):
        path = tmp_path / "config"
        path.write_text(text)
        api.open_api.cache_clear()
        with pytest.raises(KubernetesError, match=r"kubernetes\.kubeconfig = "):
            _check(Cluster(kubeconfig=str(path), context="lab", namespace="team"))
    missing = Cluster(kubeconfig=str(tmp_path / "none"), context="lab", namespace="team")
    with pytest.raises(KubernetesError, match="the one file that kubectl uses"):
        _check(missing)


def test_a_context_without_a_user_is_one_message(fake, cluster):
    path = Path(cluster.kubeconfig)
    config = yaml.safe_load(path.read_text())
    del config["contexts"][0]["context"]["user"]
    path.write_text(yaml.safe_dump(config))
    api.open_api.cache_clear()
    with pytest.raises(KubernetesError, match=r"kubernetes\.kubeconfig = .*cannot be used"):
        _check(cluster)


def test_what_waits_and_tunnels_need_is_asked_for(ready, cluster):
    ready.allowed = lambda asked: asked["resource"] not in ("events", "pods")
    with pytest.raises(KubernetesError) as error:
        _check(cluster)
    assert "list, get pods; get pods/log; create pods/portforward; list events" in str(error.value)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (httpx2.ConnectError("connection refused"), r"does not answer \(connection refused\)"),
        (
            FileNotFoundError(2, "No such file or directory", "aws"),
            r"does not work \(.*'aws'\): the program that it",
        ),
    ],
)
def test_a_cluster_or_a_login_program_that_does_not_answer(fake, cluster, error, said):
    fake.answer = Mock(side_effect=error)
    api.open_api.cache_clear()
    with pytest.raises(KubernetesError, match=said):
        _check(cluster)
