"""The whole program on Kubernetes, under Pulumi's mocks: what is declared, and what is exported."""

import json

import pulumi
import pytest

from engine.goal import goal_of
from engine.values import holds_secret, reveal
from infra.places.kubernetes import preflight
from trainyard.access import outputs

IMAGES = {
    program: f"registry.example/{program}:1"
    for program in ("ray", "versitygw", "jupyter", "mlflow")
}
SETTINGS = {
    "runtime": "kubernetes",
    "kubernetes": {"context": "lab", "kubeconfig": "/config", "namespace": "team"},
    "images": IMAGES,
}


@pytest.fixture
def declared(run, requests, recorded, monkeypatch):
    """Run the program; what it exports, and its objects by kind and name."""

    def program(**changes):
        monkeypatch.setattr(preflight, "check", lambda *_, **__: "cluster-1")
        exported = run(**SETTINGS | changes)
        objects = {}
        for request in requests:
            goal = goal_of(request, project="trainyard", stack="test")
            if goal.type.endswith("kubernetes:Object"):
                manifest = reveal(goal.inputs["manifest"])
                objects[manifest["kind"], manifest["metadata"]["name"]] = goal
        return exported, objects

    return program


def made(objects, kind, name):
    return reveal(objects[kind, name].inputs["manifest"])


def pod_of(objects, kind, name):
    return made(objects, kind, name)["spec"]["template"]["spec"]


def test_all_of_a_stack_is_in_one_namespace_under_its_label(declared):
    exported, objects = declared(tracking="mlflow")
    kinds = {kind for kind, _ in objects}
    assert kinds == {
        *("ConfigMap", "Secret", "Service", "PersistentVolumeClaim", "StatefulSet", "Deployment"),
        *("RayCluster", "NetworkPolicy", "PodDisruptionBudget"),
    }
    for (_, name), goal in objects.items():
        metadata = reveal(goal.inputs["manifest"])["metadata"]
        assert name == "test" or name.startswith("test-")
        assert metadata["namespace"] == "team"
        assert metadata["labels"]["trainyard/stack"] == "test"
    assert exported[outputs.KUBERNETES]["services"]["8265"] == "test-ray-head-svc"
    assert exported[outputs.KUBERNETES]["services"]["9000"] == "test-versitygw"
    assert exported[outputs.DASHBOARD_URL] == "http://127.0.0.1:8265"
    assert [node["name"] for node in exported[outputs.NODES]][:2] == ["ray-head", "ray-worker-0"]


def test_objects_name_their_owner(declared):  # D4
    exported, objects = declared(owner="net id@lab_")
    assert exported["owner"] == "net-id@lab_"
    for (_, name), goal in objects.items():
        assert name == "test-net-id-lab" or name.startswith("test-net-id-lab-")
        manifest = reveal(goal.inputs["manifest"])
        assert manifest["metadata"]["labels"]["trainyard/user"] == "net-id-lab"
        # Pods are selected by it: those of another owner's stack of this name are not.
        assert manifest["metadata"]["labels"]["trainyard/stack"] == "test-net-id-lab"
    place = exported[outputs.KUBERNETES]
    assert place["rayCluster"] == "test-net-id-lab-ray"
    assert place["services"]["8265"] == "test-net-id-lab-ray-head-svc"


def test_names_are_refused_before_any_object_is_touched(declared, requests):  # D4
    _, objects = declared(owner="ada")
    first = objects.pop(("NetworkPolicy", "test-ada"))
    assert not any("kubernetes:Object::" in urn for urn in first.fields["dependencies"])
    # Nor are jobs asked for.
    (guard,) = [each for each in requests if each.type.endswith("kubernetes:RecreateGuard")]
    after = {key: goal.fields["dependencies"] for key, goal in objects.items()}
    for key, urns in [*after.items(), ("guard", guard.dependencies)]:
        assert "kubernetes-network" in {urn.rpartition("::")[2] for urn in urns}, key


def timer_of(objects):
    """Return what the timer is told."""
    inputs = objects["Secret", "test-reservation-end"].inputs
    return json.loads(reveal(inputs["secrets"])["settings.json"])


def test_pods_with_a_reservation_end_when_idle_too(declared):  # B27
    reserved = {"start": "2026-01-01T13:00Z", "end": "2126-01-01T15:55Z"}
    exported, objects = declared(reservation=reserved, idleEnd={"minutes": 30})
    told = timer_of(objects)
    url = "http://test-idle-end:8768/verdict"
    assert told["idle"] == {"url": url, "token": "value of idle-end-token", "last": False}
    assert any(each.endswith("/deployments/test-idle-end") for each in told["objects"])
    assert "value of idle-end-token" not in str(
        [reveal(each.inputs["manifest"]) for each in objects.values()]
    )
    # The client asks it as well.
    assert exported["kubernetes"]["services"]["8768"] == "test-idle-end"
    watch = pod_of(objects, "Deployment", "test-idle-end")
    (container,) = watch["containers"]
    assert container["image"] == IMAGES["ray"]
    assert container["command"] == ["python3", "/etc/trainyard/idle_watch.py"]
    assert container["args"] == ["/etc/trainyard/idle.json"]
    (volume,) = [v for v in watch["volumes"] if v["name"] == "files"]
    files, _ = volume["projected"]["sources"]
    paths = {each["path"] for each in files["configMap"]["items"]}
    assert {"idle_watch.py", "replicate.py", "trainyard/store/objects.py"} <= paths
    known = json.loads(reveal(objects["Secret", "test-idle-end"].inputs["secrets"])["idle.json"])
    assert (known["source"], known["dashboard"]) == (None, "http://test-ray-head-svc:8265")


def test_a_reservations_timer_may_end_what_makes_pods_and_nothing_else(declared):  # D3
    reserved = {"start": "2026-01-01T13:00Z", "end": "2126-01-01T15:55Z"}
    before = declared(tracking="mlflow")[1]
    _, objects = declared(tracking="mlflow", reservation=reserved)
    timer = {
        (kind, "test-reservation-end")
        for kind in ("ConfigMap", "Deployment", "Role", "RoleBinding", "Secret", "ServiceAccount")
    }
    assert objects.keys() - before.keys() == timer

    told = timer_of(objects)
    assert "idle" not in told
    assert (told["end"], told["drainSeconds"]) == ("2126-01-01T15:55:00+00:00", 60)
    paths = {tuple(path.split("/")[-2:]) for path in told["objects"]}
    pods = {kind: f"{kind.lower()}s" for kind in ("Deployment", "StatefulSet", "Job", "RayCluster")}
    assert {(pods[kind], name) for kind, name in objects if kind in pods} <= paths
    assert told["objects"][-1].endswith("/deployments/test-reservation-end")  # its own, at last
    rules = made(objects, "Role", "test-reservation-end")["rules"]
    allowed = {
        (resource, name)
        for rule in rules
        for resource in rule["resources"]
        for name in rule["resourceNames"]
    }
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "delete"}
    assert paths <= allowed
    assert {name for _, name in allowed} == {name for _, name in paths}
    assert {kind for kind, _ in allowed} == {*pods.values()}


def test_a_later_end_restarts_what_tells_it_and_no_ray(declared):  # D3
    found = []
    for end in ("2126-01-01T15:55Z", "2126-01-02T15:55Z"):
        reserved = {"start": "2026-01-01T13:00Z", "end": end}
        _, objects = declared(notebook=True, reservation=reserved)
        found.append({key: reveal(goal.inputs["manifest"]) for key, goal in objects.items()})
    changed = {key for key in found[0] if found[0][key] != found[1][key]}
    # The notebook's `train` and folder tell the end, Prometheus warns of it.
    told = {"test-reservation-end", "test-prometheus", "test-jupyter"}
    assert {name for _, name in changed} == told
    (seeds,) = found[1]["StatefulSet", "test-jupyter"]["spec"]["template"]["spec"]["initContainers"]
    assert ">reservation-ends-2126-01-02-1555-UTC.txt" in seeds["command"][-1]


def test_the_queue_is_a_pod_with_a_claim_and_the_address_of_jobs(declared):
    where = SETTINGS["kubernetes"] | {"queue": "team", "priorityClass": "high"}
    exported, objects = declared(queue=True, notebook=True, kubernetes=where)
    assert exported[outputs.DASHBOARD_URL] == "http://127.0.0.1:8270"
    assert exported[outputs.KUBERNETES]["services"]["8270"] == "test-queue"
    pod = pod_of(objects, "StatefulSet", "test-queue")
    (container,) = pod["containers"]
    assert container["command"] == ["python3", "/etc/trainyard/trainyard_queue.py"]
    (files,) = [each["projected"] for each in pod["volumes"] if each["name"] == "files"]
    paths = {
        item["path"]
        for each in files["sources"]
        for kind in each.values()
        for item in kind["items"]
    }
    assert {"trainyard_queue.py", "trainyard/queue/__main__.py", "queue.json"} <= paths
    kept = [each for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert kept[0]["persistentVolumeClaim"]["claimName"] == "test-queue-data"
    # Kueue takes the cluster by its labels, and pods of others have none.
    labelled = {
        name
        for (_, name), goal in objects.items()
        if "kueue.x-k8s.io/queue-name" in json.dumps(reveal(goal.inputs["manifest"]))
    }
    assert labelled == {"test-ray"}
    labels = made(objects, "RayCluster", "test-ray")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/priority-class"] == "high"


def test_a_groups_pods_have_its_image_and_run_on_its_nodes(declared):  # B24
    taint = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    gpu = {"name": "gpu", "image": "registry.example/ray-cuda:1", "tolerations": [taint]}
    _, objects = declared(
        nodeGroups=[{"name": "cpu"}, {**gpu, "nodeSelector": {"example.com/gpu": "h100"}}]
    )
    groups = made(objects, "RayCluster", "test-ray")["spec"]["workerGroupSpecs"]
    pods = {group["groupName"]: group["template"]["spec"] for group in groups}
    images = {name: pod["containers"][0]["image"] for name, pod in pods.items()}
    assert images == {"cpu": IMAGES["ray"], "gpu": gpu["image"]}
    assert pods["gpu"]["nodeSelector"] == {"example.com/gpu": "h100"}
    assert pods["gpu"]["tolerations"] == [taint]
    assert not {"nodeSelector", "tolerations"} & pods["cpu"].keys()


def test_secrets_are_secret_inputs_and_in_no_manifest(declared):
    exported, objects = declared()
    for goal in objects.values():
        assert not holds_secret(goal.inputs["manifest"])
        assert holds_secret(goal.inputs["secrets"]) is bool(reveal(goal.inputs["secrets"]))
    token = objects["Secret", "test-ray-token"]
    assert reveal(token.inputs["secrets"]) == {"auth_token": exported[outputs.RAY_TOKEN]}
    assert exported[outputs.RAY_TOKEN] not in json.dumps(
        [reveal(goal.inputs["manifest"]) for goal in objects.values()]
    )


def test_jobs_find_what_they_find_elsewhere(declared):
    _, objects = declared(tracking="mlflow")
    spec = made(objects, "RayCluster", "test-ray")["spec"]
    (container,) = spec["workerGroupSpecs"][0]["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["AWS_ENDPOINT_URL"] == "http://test-versitygw:9000"
    assert variables["MLFLOW_TRACKING_URI"] == "http://test-mlflow:5000"
    assert variables["AWS_SHARED_CREDENTIALS_FILE"] == "/etc/trainyard/aws-credentials"
    assert "RAY_AUTH_TOKEN_PATH" not in variables  # the operator gives the token
    secret = reveal(objects["Secret", "test-ray"].inputs["secrets"])
    assert {"aws-credentials", "mlflow-credentials", "serve-token"} <= secret.keys()
    digests = spec["headGroupSpec"]["template"]["metadata"]["annotations"]
    assert digests["trainyard/files"]


def test_pods_of_users_mount_volumes(declared):
    given = [
        {"name": "mine", "path": "/srv/mine", "mount": "/data/mine"},
        {"name": "nas", "nfs": "nas:/export", "mount": "/data/nas"},
        {"name": "ours", "claim": "photos", "mount": "/data/ours", "readOnly": False},
    ]
    _, objects = declared(notebook=True, volumes=given)
    ray = made(objects, "RayCluster", "test-ray")["spec"]
    notebook = made(objects, "StatefulSet", "test-jupyter")["spec"]
    groups = (ray["headGroupSpec"], *ray["workerGroupSpecs"], notebook)
    for pod in (each["template"]["spec"] for each in groups):
        sources = {each.pop("name"): each for each in map(dict, pod["volumes"])}
        assert {
            mount["mountPath"]: (sources[mount["name"]], mount.get("readOnly", False))
            for mount in pod["containers"][0]["volumeMounts"]
            if mount["mountPath"].startswith("/data")
        } == {
            "/data/mine": ({"hostPath": {"path": "/srv/mine", "type": "Directory"}}, True),
            "/data/nas": ({"nfs": {"server": "nas", "path": "/export"}}, True),
            "/data/ours": ({"persistentVolumeClaim": {"claimName": "photos"}}, False),
        }


def test_groups_are_groups_of_kuberays(declared):
    groups = [
        {"name": "cpu", "count": 2, "cpus": 4},
        {"name": "gpu", "min": 0, "max": 3, "gpus": 1, "idleMinutes": 2},
    ]
    exported, objects = declared(nodeGroups=groups, accelerator="nvidia")
    spec = made(objects, "RayCluster", "test-ray")["spec"]
    groups = spec["workerGroupSpecs"]
    found = [(each["groupName"], each["minReplicas"], each["maxReplicas"]) for each in groups]
    assert found == [("cpu", 2, 2), ("gpu", 0, 3)]
    assert spec["enableInTreeAutoscaling"] is True
    assert [node["onDemand"] for node in exported[outputs.NODES]] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("keep", [True, False])
def test_claims_with_results_are_kept_where_the_settings_say_so(declared, keep):
    _, objects = declared(keepData=json.dumps(keep))
    kept = {kind for (kind, _), goal in objects.items() if goal.inputs["keep"]}
    assert kept == ({"PersistentVolumeClaim"} if keep else set())


def test_jobs_wait_for_a_data_set_in_the_volume_that_pods_share(declared):
    kubernetes = SETTINGS["kubernetes"] | {"shared": {"claim": "nfs"}}
    images = IMAGES | {"dataset": "registry.example/dataset:1"}
    _, objects = declared(kubernetes=kubernetes, images=images, dataset={"generate": True})
    ray = objects["RayCluster", "test-ray"]
    assert any(urn.endswith("kubernetes-dataset-ready") for urn in ray.fields["dependencies"])
    pod = reveal(ray.inputs["manifest"])["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    claims = [each.get("persistentVolumeClaim") for each in pod["volumes"]]
    assert {"claimName": "nfs"} in claims
    variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    folder = "/var/lib/trainyard/shared/test/food11/Food-11"
    assert variables["FOOD11_DATA_DIR"] == folder
    assert variables["RAY_LD_PRELOAD_ON_WORKERS"] == "1"  # P7
    assert "/var/lib/trainyard/shared/test/food11" in str(made(objects, "Job", "test-dataset"))


def test_a_data_set_may_be_in_a_claim_of_the_user(declared):
    images = IMAGES | {"dataset": "registry.example/dataset:1"}
    mine = {"name": "mine", "claim": "photos", "mount": "/data/mine"}
    _, objects = declared(
        images=images, volumes=[mine], dataset={"generate": True, "volume": "mine"}
    )
    ray = objects["RayCluster", "test-ray"]
    assert any(urn.endswith("kubernetes-dataset-ready") for urn in ray.fields["dependencies"])
    worker = reveal(ray.inputs["manifest"])["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    filler = pod_of(objects, "Job", "test-dataset")
    for pod, read_only in ((worker, True), (filler, False)):
        claims = [each.get("persistentVolumeClaim") for each in pod["volumes"]]
        assert claims.count({"claimName": "photos"}) == 1
        mounts = {each["mountPath"]: each for each in pod["containers"][0]["volumeMounts"]}
        assert mounts["/data/mine"].get("readOnly", False) is read_only
    variables = {each["name"]: each["value"] for each in worker["containers"][0]["env"]}
    assert variables["FOOD11_DATA_DIR"] == "/data/mine/Food-11"
    assert filler["containers"][0]["args"][:2] == ["--folder", "/data/mine"]


def test_what_kuberay_cannot_do_is_one_message(declared):
    with pytest.raises(pulumi.RunError, match="takes whole numbers"):
        declared(worker={"cpus": 0.5})


@pytest.mark.parametrize(
    ("where", "changes", "url"),
    [
        (
            {"shared": {"nfs": "nas:/srv"}},
            {"objectStore": "directory"},
            "file:///var/lib/trainyard/",
        ),
        ({"bucket": "s3://results/team", "environmentSecret": "keys"}, {}, "s3://results/team"),
    ],
)
def test_with_rays_own_image_nothing_is_built_and_no_store_runs(
    declared, where, changes, url
):  # E2
    kubernetes = {**SETTINGS["kubernetes"], "image": "rayproject/ray:2.60.0-py311", **where}
    exported, objects = declared(kubernetes=kubernetes, images={}, **changes)
    assert exported[outputs.STORAGE_URL].startswith(url)
    assert "test-versitygw" not in {name for _, name in objects}
    spec = made(objects, "RayCluster", "test-ray")["spec"]
    pod = spec["headGroupSpec"]["template"]["spec"]
    assert ("envFrom" in pod["containers"][0]) == ("bucket" in where)
    sources = [volume.get("nfs") for volume in pod["volumes"]]
    assert ({"server": "nas", "path": "/srv"} in sources) == ("shared" in where)
    variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    (base,) = pod["initContainers"][-1]["env"]
    assert variables[base["name"]] == base["value"]
