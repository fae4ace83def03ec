"""What is missing in a cluster is told at once, in one message, before anything is made."""

from pathlib import Path

import httpx2
import pytest
import yaml

from access.kubectl import Cluster
from infra.runtimes.kubernetes import api, preflight
from infra.runtimes.kubernetes.api import KubernetesError

CRD = ("customresourcedefinitions", "rayclusters.ray.io")


def _crd(*fields, version="v1", autoscaler=("args",)):
    spec = {"properties": {name: {} for name in fields}}
    spec["properties"]["autoscalerOptions"] = {"properties": {name: {} for name in autoscaler}}
    schema = {"openAPIV3Schema": {"properties": {"spec": spec}}}
    return {"spec": {"versions": [{"name": version, "served": True, "schema": schema}]}}


@pytest.fixture
def ready(fake):
    """A cluster that has all."""
    fake.objects["namespaces", "team"] = {"metadata": {"name": "team"}, "status": {}}
    fake.objects[CRD] = _crd("authOptions", "upgradeStrategy")
    return fake


def test_a_cluster_that_has_all_is_known_by_its_own_id(ready, cluster):
    assert preflight.check(cluster) == "cluster-1"


def test_all_faults_are_in_one_message_with_the_helm_commands(fake, cluster):
    fake.allowed = lambda asked: asked["resource"] != "secrets"
    with pytest.raises(KubernetesError) as error:
        preflight.check(cluster)
    said = str(error.value)
    assert "namespace team does not exist: kubectl --context lab create namespace team" in said
    assert "helm upgrade --install kuberay-operator kuberay/kuberay-operator" in said
    assert "may not get, create, patch, delete secrets in namespace team" in said


@pytest.mark.parametrize(
    ("crd", "said"),
    [
        (_crd(version="v1alpha1"), "has no version v1"),
        (_crd("upgradeStrategy"), "it lacks spec.authOptions"),
        (
            _crd("authOptions", "upgradeStrategy", autoscaler=()),  # 1.6
            "it lacks spec.autoscalerOptions.args",
        ),
    ],
)
def test_an_old_crd_is_told_from_none(ready, cluster, crd, said):
    ready.objects[CRD] = crd
    with pytest.raises(KubernetesError) as error:
        preflight.check(cluster)
    assert said in str(error.value)
    assert "kubectl apply --server-side" in str(error.value)


def test_a_context_that_is_not_there_names_those_that_are(cluster):
    other = Cluster(kubeconfig=cluster.kubeconfig, context="prod", namespace="team")
    with pytest.raises(KubernetesError, match=r"no such context \(there: lab\)"):
        preflight.check(other)


def test_a_kubeconfig_that_cannot_be_read_is_one_message(tmp_path):
    for text in ("", "[", "- a"):
        path = tmp_path / "config"
        path.write_text(text)
        api.open_api.cache_clear()
        with pytest.raises(KubernetesError, match=r"kubernetes\.kubeconfig = "):
            preflight.check(Cluster(kubeconfig=str(path), context="lab", namespace="team"))
    missing = Cluster(kubeconfig=str(tmp_path / "none"), context="lab", namespace="team")
    with pytest.raises(KubernetesError, match="the one file that kubectl uses"):
        preflight.check(missing)


def test_a_login_program_that_is_missing_is_one_message(fake, cluster):
    def refuse(request):
        raise FileNotFoundError(2, "No such file or directory", "aws")

    fake.answer = refuse
    api.open_api.cache_clear()
    with pytest.raises(KubernetesError, match=r"does not work \(.*'aws'\): the program that it"):
        preflight.check(cluster)


def test_a_context_without_a_user_is_one_message(fake, cluster):
    path = Path(cluster.kubeconfig)
    config = yaml.safe_load(path.read_text())
    del config["contexts"][0]["context"]["user"]
    path.write_text(yaml.safe_dump(config))
    api.open_api.cache_clear()
    with pytest.raises(KubernetesError, match=r"kubernetes\.kubeconfig = .*cannot be used"):
        preflight.check(cluster)


def test_what_waits_and_tunnels_need_is_asked_for(ready, cluster):
    ready.allowed = lambda asked: asked["resource"] not in ("events", "pods")
    with pytest.raises(KubernetesError) as error:
        preflight.check(cluster)
    assert "list, get pods; get pods/log; create pods/portforward; list events" in str(error.value)


def test_a_cluster_that_does_not_answer_is_one_message(fake, cluster):
    def refuse(request):
        raise httpx2.ConnectError("connection refused")

    fake.answer = refuse
    api.open_api.cache_clear()
    with pytest.raises(KubernetesError, match=r"does not answer \(connection refused\)"):
        preflight.check(cluster)
