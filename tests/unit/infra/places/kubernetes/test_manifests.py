"""Manifests of services: what Kubernetes is told, without a cluster."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from cluster.service import HealthCheck, Port, Service, Volume
from infra.places.kubernetes import manifests
from infra.places.kubernetes.manifests import ObjectDefaults
from infra.settings.kubernetes import Kubernetes, Shared

DATA = Volume(name="data", keep=True)
SHARED = Volume(name="food11", keep=True, shared=True, read_only=True, mount="/mnt")
IMAGE = "registry.example/store:1"


@pytest.fixture
def defaults():
    settings = SimpleNamespace(
        names_of_objects="lab", start_timeout_seconds=120, reservation=None, keep_data=True
    )
    where = Kubernetes(context="lab", namespace="team", pull_secrets=("registry",))
    labels = manifests.labels("trainyard", "lab")
    return ObjectDefaults(settings=settings, where=where, labels=labels)


def _with(defaults, **changes):
    return replace(defaults, where=defaults.where.model_copy(update=changes))


@pytest.fixture
def store():
    return Service(
        name="store",
        program="versitygw",
        arguments=["--port", "9000"],
        environment={"A": "1"},
        files={"dashboards/a.json": "{}"},
        secrets={"root": "never-in-a-manifest"},
        volumes=[DATA],
        ports=[Port(number=9000, setting="objectStorePort", published=True)],
        health=[HealthCheck(port=9000, path="/health")],
    )


def _workload(defaults, service):
    return manifests.workload(defaults, service, image=IMAGE, memory_mib=4096, files="digest")


def _pod(defaults, service):
    return _workload(defaults, service)["spec"]["template"]["spec"]


def test_a_pod_keeps_the_profile_restricted(defaults, store):
    pod = _pod(defaults, replace(store, program="jupyter"))  # which has an init container
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["imagePullSecrets"] == [{"name": "registry"}]  # that are named
    containers = [*pod["containers"], *pod["initContainers"]]
    assert len(containers) == 2
    for container in containers:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["imagePullPolicy"] == "IfNotPresent"
        assert container["resources"]["limits"]["memory"]
    # The read-only page, in the same image, has nothing to fill.
    assert "initContainers" not in _pod(defaults, replace(store, program="jupyter", volumes=()))


def test_what_has_results_never_runs_twice(defaults, store):
    found = _workload(defaults, store)
    assert (found["kind"], found["spec"]["replicas"]) == ("StatefulSet", 1)
    assert found["spec"]["podManagementPolicy"] == "Parallel"
    other = _workload(defaults, replace(store, volumes=()))
    assert (other["kind"], other["spec"]["strategy"]) == ("Deployment", {"type": "Recreate"})


def test_what_runs_once_is_a_job_without_another_try(defaults, store):
    found = _workload(defaults, replace(store, once=True, health=()))
    assert (found["kind"], found["spec"]["backoffLimit"]) == ("Job", 0)
    assert found["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_files_and_secrets_are_one_folder_and_secrets_in_no_manifest(defaults, store):
    assert "never-in-a-manifest" not in str(_workload(defaults, store))
    volume = next(each for each in _pod(defaults, store)["volumes"] if each["name"] == "files")
    files, secret = volume["projected"]["sources"]
    assert files["configMap"]["items"] == [
        {"key": "dashboards..a.json", "path": "dashboards/a.json"}
    ]
    assert secret["secret"] == {"name": "lab-store", "items": [{"key": "root", "path": "root"}]}
    assert volume["projected"]["defaultMode"] == 0o440
    assert manifests.config_map(defaults, "store", store.files)["data"] == {
        "dashboards..a.json": "{}"
    }


def test_probes_ask_by_the_name_that_programs_expect(defaults, store):
    container = _pod(defaults, store)["containers"][0]
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        get = container[kind]["httpGet"]
        assert (get["path"], get["port"]) == ("/health", 9000)
        assert get["httpHeaders"] == [{"name": "Host", "value": "127.0.0.1:9000"}]
    assert container["startupProbe"]["failureThreshold"] == 120


def test_every_object_has_the_stacks_labels_and_name(defaults, store):
    for found in (
        _workload(defaults, store),
        manifests.claim(defaults, "store", DATA),
        manifests.network_service(defaults, store),
        manifests.config_map(defaults, "store", {}),
        manifests.secret(defaults, "store"),
    ):
        assert defaults.labels.items() <= found["metadata"]["labels"].items()
        assert found["metadata"]["name"].startswith("lab-store")
        assert found["metadata"]["namespace"] == "team"
    selector = manifests.network_service(defaults, store)["spec"]["selector"]
    assert selector == _workload(defaults, store)["spec"]["template"]["metadata"]["labels"]
    named = SimpleNamespace(**vars(defaults.settings) | {"names_of_objects": "other"})
    other = replace(defaults, settings=named, labels=manifests.labels("trainyard", "other"))
    assert not selector.items() <= other.pods("store").items()


def test_a_claim_has_the_size_and_the_class_that_are_set(defaults):
    default = manifests.claim(defaults, "store", DATA)["spec"]
    assert default["resources"]["requests"]["storage"] == "20Gi"
    assert "storageClassName" not in default  # an empty one would ask for none
    chosen = manifests.claim(_with(defaults, storage_class="fast"), "store", DATA)["spec"]
    assert chosen["storageClassName"] == "fast"


def test_shared_volumes_are_folders_of_the_one_that_pods_share(defaults, store):
    assert manifests.path(defaults, SHARED) == "/mnt"
    source = {"persistentVolumeClaim": {"claimName": "nfs"}}
    shared = _with(defaults, shared=Shared(claim="nfs"))
    assert manifests.path(shared, SHARED) == "/var/lib/trainyard/shared/lab/food11"
    pod = _pod(shared, replace(store, volumes=[SHARED]))
    assert {"name": "shared", **source} in pod["volumes"]
    mount = next(each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "shared")
    assert mount["mountPath"] == "/var/lib/trainyard/shared"
    assert mount["readOnly"] is True


def test_a_digest_changes_with_content_and_name():
    found = {
        manifests.digest(each)
        for each in ({"a": "1"}, {"a": "2"}, {"b": "1"}, {"a": "1", "b": ""}, {})
    }
    assert len(found) == 5
