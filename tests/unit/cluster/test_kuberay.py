"""The Ray cluster on Kubernetes: its manifests as KubeRay and Ray's autoscaler read them."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

from cluster import kuberay
from cluster.kuberay_pods import DRAIN
from cluster.kuberay_spec import Mount, Packages, RayClusterSpec, WorkerGroup
from cluster.ray_node import Growth, NodeResources
from tests import ran
from tests.raycluster_schema import validate
from tests.unit.cluster.conftest import PORTS

NODE = NodeResources(cpus=2, gpus=0, memory_mib=1024, object_store_mib=128)
LABELS = {"trainyard/stack": "lab", "app": "trainyard"}
FIXED = WorkerGroup(node=NODE, count=2)
GPU = WorkerGroup(
    node=replace(NODE, gpus=1, group="gpu", growth=Growth(least=0, idle_seconds=90)),
    count=4,
    node_selector={"gpu": "h100"},
    tolerations=[{"key": "gpu", "operator": "Exists"}],
)
TPU = WorkerGroup(node=replace(NODE, group="tpu", resources={"TPU": 4}), count=1)
SHARED = Mount(
    name="results",
    path="/mnt/results",
    source={"persistentVolumeClaim": {"claimName": "results"}},
    read_only=False,
)
KEYS = Mount(name="keys", path="/etc/keys", source={"secret": {"secretName": "keys"}})
FILES = Mount(name="files", path="/etc/files", source={"configMap": {"name": "files"}})
DATA = Mount(
    name="data",
    path="/data",
    source={"hostPath": {"path": "/srv/data", "type": "Directory"}},
    read_only=False,
)
SPEC = RayClusterSpec(
    name="trainyard-lab",
    namespace="ml",
    labels=LABELS,
    image="registry.example/ray:1",
    ray_version="2.60.0",
    token_secret="trainyard-lab-token",
    head=replace(NODE, cpus=0),
    groups=[FIXED],
    ports=PORTS,
    head_environment={"B": "2", "A": "1"},
    worker_environment={"A": "1"},
    drain_seconds=75,
)
# All that can be said, so that a schema sees all of it.
FULL = replace(
    SPEC,
    groups=[FIXED, GPU, TPU],
    accelerator="nvidia",
    pull_secrets=["registry"],
    mounts=[SHARED, KEYS, FILES],
    head_mounts=[DATA],
    shared=SHARED.path,
    annotations={"trainyard/files": "0123"},
    cpu_share=0.25,
    packages=Packages(folder="/mnt/results/1", module="/etc/files/packages.py", python="3.11"),
    environment_secret="bucket",
)


def _cluster(spec: RayClusterSpec) -> dict[str, Any]:
    found: dict[str, Any] = kuberay.ray_cluster(spec)["spec"]
    return found


def _pods(spec: RayClusterSpec) -> list[dict[str, Any]]:
    found = _cluster(spec)
    groups = [found["headGroupSpec"], *found["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def _containers(spec: RayClusterSpec) -> list[dict[str, Any]]:
    return [pod["containers"][0] for pod in _pods(spec)]


@pytest.mark.parametrize("spec", [SPEC, FULL], ids=["plain", "full"])
def test_the_schema_has_all_its_fields(spec):
    validate(kuberay.ray_cluster(spec))


def test_ray_asks_for_the_token_of_the_stack():
    found = _cluster(SPEC)
    assert found["authOptions"] == {"mode": "token", "secretName": "trainyard-lab-token"}
    assert found["rayVersion"] == "2.60.0"  # without it KubeRay refuses tokens


def test_the_autoscaler_of_ray_reads_the_groups():
    cluster = json.loads(json.dumps(kuberay.ray_cluster(FULL)))
    types = AutoscalingConfig(
        _derive_autoscaling_config_from_ray_cr(cluster)
    ).get_node_type_configs()
    assert {
        name: (kind.min_worker_nodes, kind.max_worker_nodes, kind.idle_timeout_s)
        for name, kind in types.items()
        if name != "headgroup"
    } == {"worker": (2, 2, None), "gpu": (0, 4, 90), "tpu": (1, 1, None)}
    assert types["headgroup"].resources["CPU"] == 0  # no job is placed there
    assert types["gpu"].resources["GPU"] == 1
    assert types["tpu"].resources["TPU"] == 4
    assert types["gpu"].labels["group"] == "gpu"


def test_bash_passes_custom_resources_on():
    group = _cluster(FULL)["workerGroupSpecs"][2]
    words = shlex.split(f"ray start --resources={group['rayStartParams']['resources']}")
    assert json.loads(words[-1].removeprefix("--resources=")) == {"TPU": 4}


def test_a_group_that_grows_is_left_to_the_autoscaler():
    found = _cluster(FULL)
    assert found["enableInTreeAutoscaling"]
    assert found["autoscalerOptions"]["version"] == "v2"  # else KubeRay refuses idleTimeoutSeconds
    owned = {"replicas", "scaleStrategy"}
    assert not any(owned & group.keys() for group in found["workerGroupSpecs"])


def test_a_cluster_of_one_size_has_no_autoscaler():
    found = _cluster(SPEC)
    assert not {"enableInTreeAutoscaling", "autoscalerOptions"} & found.keys()
    (group,) = found["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (2, 2, 2)


def test_memory_and_gpus_are_those_of_each_group():  # E2
    head, fixed, gpu, tpu = (container["resources"] for container in _containers(FULL))
    assert gpu["limits"]["nvidia.com/gpu"] == gpu["requests"]["nvidia.com/gpu"] == "1"
    assert not any("nvidia.com/gpu" in each["limits"] for each in (head, fixed, tpu))
    # On top of 1024 MiB for jobs and 128 for objects, the node's own and that of its 2 CPUs.
    assert fixed["limits"]["memory"] == fixed["requests"]["memory"] == "3456Mi"
    # A driver on the head may take more than the head's request.
    assert (head["requests"]["memory"], head["limits"]["memory"]) == ("3200Mi", "11392Mi")
    assert (fixed["requests"]["cpu"], fixed["limits"]["cpu"]) == ("500m", "2")
    amd = _containers(replace(FULL, accelerator="amd"))[2]
    assert amd["resources"]["limits"]["amd.com/gpu"] == "1"


def test_all_pods_have_the_shared_volume_and_may_write_it():  # E2, E5
    for pod in _pods(FULL):
        mount = {"name": "results", "mountPath": "/mnt/results"}
        assert mount in pod["containers"][0]["volumeMounts"]
        claim = {"name": "results", "persistentVolumeClaim": {"claimName": "results"}}
        assert claim in pod["volumes"]
        assert pod["securityContext"]["fsGroup"] == 1000
        check, install = pod["initContainers"]
        assert check["volumeMounts"] == [mount]
        assert mount in install["volumeMounts"]
        assert "/dev/shm" in [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
    pods = _pods(FULL)
    assert [DATA.volume in pod["volumes"] for pod in pods] == [True, *[False] * 3]
    assert (pods[2]["nodeSelector"], pods[2]["tolerations"]) == (GPU.node_selector, GPU.tolerations)


def test_pods_install_what_their_image_lacks_in_that_image():  # E2
    for pod in _pods(replace(FULL, groups=[replace(GPU, image="rayproject/ray:2.60.0-gpu")])):
        (ray,), install = pod["containers"], pod["initContainers"][-1]
        assert install["image"] == ray["image"]
        assert install["env"] == [{"name": "PYTHONUSERBASE", "value": "/mnt/results/1"}]
        assert install["command"][-4:-1] == ["/etc/files/packages.py", "2.60.0", "3.11"]
        assert install["command"][-1].endswith("rayproject/ray:2.60.0-py311")
        assert ray["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert not any("initContainers" in pod for pod in _pods(SPEC))


def test_a_shared_volume_that_is_not_writable_says_what_to_do(tmp_path):  # E5
    check, _ = _pods(FULL)[0]["initContainers"]
    script = check["command"][:4]
    assert _run([*script, str(tmp_path), "1000"]) == (0, "")
    status, said = _run([*script, str(tmp_path / "none"), "1000"])
    assert status == 1
    assert f"{tmp_path}/none is not writable" in said
    assert "group 1000" in said


def _run(command: list[str]) -> tuple[int, str]:
    done = ran.run(command)
    return done.returncode, done.stderr


def test_the_autoscaler_looks_before_the_operator_has_made_an_ended_pod_anew():
    variable, *_ = _cluster(FULL)["autoscalerOptions"]["env"]
    assert variable == {"name": "AUTOSCALER_UPDATE_INTERVAL_S", "value": "1"}


def test_the_autoscaler_is_told_of_ports_that_are_not_kuberays():
    options = _cluster(FULL)["autoscalerOptions"]
    port = {"name": "AUTOSCALER_METRIC_PORT", "value": str(FULL.ports["autoscalerMetricsPort"])}
    assert port in options["env"]
    assert "args" not in options  # which KubeRay 1.6 does not know
    other = _cluster(replace(FULL, ports=PORTS | {"gcsPort": 6400}))["autoscalerOptions"]
    command = "$KUBERAY_GEN_AUTOSCALER_START_CMD --gcs-address=127.0.0.1:"
    assert other["args"] == [f"{command}6400"]


def test_a_pod_that_is_placed_nowhere_does_not_hold_jobs_for_an_hour(monkeypatch):
    for each in _cluster(replace(FULL, pod_seconds=600))["autoscalerOptions"]["env"]:
        monkeypatch.setenv(each["name"], each["value"])
    script = (
        "from ray.autoscaler.v2.instance_manager import config; "
        "print(config.InstanceReconcileConfig().allocate_status_timeout_s, "
        "config.RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.split() == [b"600", b"60"]  # as Ray's own autoscaler reads them


def test_workers_alone_have_the_time_to_drain_their_node():
    head, *workers = _pods(FULL)
    for worker in workers:
        variables = {each["name"]: each.get("value") for each in worker["containers"][0]["env"]}
        assert variables[DRAIN] == "75"
        times = [each["terminationGracePeriodSeconds"] for each in (worker, head)]
        assert times[0] - times[1] == 75


def test_pods_have_no_more_rights_than_they_need():
    options = _cluster(FULL)["autoscalerOptions"]
    containers = [*_containers(FULL), options, *(pod["initContainers"][0] for pod in _pods(FULL))]
    for container in containers:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    for pod in _pods(FULL):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]


def test_the_autoscaler_alone_can_ask_kubernetes():
    head, *workers = _pods(FULL)
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    (mount,) = _cluster(FULL)["autoscalerOptions"]["volumeMounts"]
    assert mount["mountPath"] == folder
    (volume,) = [each for each in head["volumes"] if each["name"] == mount["name"]]
    paths = json.dumps(volume["projected"])
    assert all(f'"{name}"' in paths for name in ("token", "ca.crt", "namespace"))
    for pod in (head, *workers):
        mounted = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
        assert folder not in mounted


def test_ports_are_reached_from_pods_of_the_stack_only():
    found = kuberay.network_policy("trainyard-lab", "ml", LABELS)["spec"]
    pods = {"matchLabels": LABELS}
    assert found == {
        "podSelector": pods,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": pods}]}],
    }
    for group in [_cluster(FULL)["headGroupSpec"], *_cluster(FULL)["workerGroupSpecs"]]:
        assert LABELS.items() <= group["template"]["metadata"]["labels"].items()


def test_draining_a_machine_does_not_end_the_head():
    found = kuberay.head_budget(SPEC.name, "ml", LABELS)["spec"]
    head = {"ray.io/cluster": SPEC.name, "ray.io/node-type": "head"}
    assert found == {"minAvailable": 1, "selector": {"matchLabels": head}}


def test_the_same_settings_give_the_same_text():
    turned = replace(
        SPEC,
        labels=dict(reversed([*LABELS.items()])),
        head_environment=dict(reversed([*SPEC.head_environment.items()])),
    )
    assert json.dumps(kuberay.ray_cluster(turned)) == json.dumps(kuberay.ray_cluster(SPEC))
    names = [[each["name"] for each in container["env"]] for container in _containers(SPEC)]
    assert names == [["A", "B"], ["A", DRAIN]]


def test_the_service_of_the_head_has_the_ports_of_the_stack():
    spec = replace(SPEC, ports=PORTS | {"dashboardPort": 9265})
    ports = {each["name"]: each["containerPort"] for each in _containers(spec)[0]["ports"]}
    assert ports["dashboard"] == 9265
    assert _cluster(spec)["headGroupSpec"]["rayStartParams"]["dashboard-port"] == "9265"


def test_no_port_of_the_stack_is_one_that_ray_keeps_for_workers():
    spec = _cluster(SPEC)
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        parameters = group["rayStartParams"]
        assert (parameters["min-worker-port"], parameters["max-worker-port"]) == ("0", "0")


def test_changed_pods_are_made_anew():
    assert _cluster(SPEC)["upgradeStrategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": [replace(FIXED, node=replace(NODE, cpus=0.5))]}, "cpus of .* is 0.5"),
        ({"groups": [replace(TPU, node=replace(NODE, resources={"a'b": 1}))]}, 'resource "a\'b"'),
    ],
)
def test_what_kuberay_cannot_have_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        replace(SPEC, **change)


def test_a_group_cannot_have_the_name_of_the_head():
    with pytest.raises(ValueError, match="headgroup"):
        WorkerGroup(node=replace(NODE, group="headgroup"), count=1)
