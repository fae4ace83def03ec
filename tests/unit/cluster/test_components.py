"""What the components declare, under mocks."""

from dataclasses import replace
from typing import Any

import pytest

from cluster import minio_admin, minio_store, object_store, store_kind, versitygw_admin
from cluster.job_processes import JobProcesses
from cluster.object_store import ObjectStore
from cluster.ray_cluster import RayCluster
from cluster.ray_node import NodeAddition, NodeResources
from cluster.service import HealthCheck, Service
from cluster.storage import Storage
from cluster.store_kind import StoreKind
from node import ray_leave, ray_start, source_text
from tests.unit.cluster.conftest import stack

ROOT = {"endpoint": "127.0.0.1:9", "rootUser": "root", "rootPassword": "valid"}
ROOT |= {"secretKey": "s", "policy": "{}", "bucket": "ray", "statements": "[]"}
WORKER = NodeResources(cpus=2, gpus=1, memory_mib=2048, object_store_mib=256)


def _cluster(runtime: Any, **changes: Any) -> RayCluster:
    return RayCluster("ray", stack(runtime, **{"workers": [WORKER, WORKER]} | changes))


def test_a_cluster_is_a_head_and_its_workers(runtime, deploy, recorded):
    nodes = deploy(lambda: _cluster(runtime).nodes)
    assert list(runtime.placed) == ["ray-head", "ray-worker-0", "ray-worker-1"]
    assert [node["name"] for node in nodes] == list(runtime.placed)
    assert nodes[1] == {
        "name": "ray-worker-0",
        "group": "",
        "onDemand": False,
        "hourlyCost": 0,
        "launched": True,
        "cpus": 2,
        "gpus": 1,
        "memoryMib": 2048,
        "objectStoreMib": 256,
        "resources": {},
    }
    tokens = {args.typ for args in recorded.created}
    assert "trainyard:cluster:RayCluster" in tokens


def test_a_worker_of_a_group_has_its_label(runtime, deploy):
    plain, grouped = WORKER, replace(WORKER, group="tpu")
    deploy(lambda: _cluster(runtime, workers=[plain, grouped]).nodes)
    assert "--labels=group=tpu" in runtime.placed["ray-worker-1"].arguments
    assert "--labels" not in str(runtime.placed["ray-worker-0"].arguments)


def test_workers_join_at_the_runtimes_address_of_the_head(runtime, deploy):
    url = deploy(lambda: _cluster(runtime).dashboard_url)
    assert url == "http://host.example:8265"
    assert "--address=ray-head.internal:6379" in runtime.placed["ray-worker-1"].arguments
    assert "--dashboard-host=0.0.0.0" in runtime.placed["ray-head"].arguments


def test_threads_are_rays_own_business_unless_cpus_are_only_counted(runtime, deploy):
    counted = replace(WORKER, threads=3)
    deploy(lambda: _cluster(runtime, workers=(WORKER, counted)).dashboard_url)
    placed = [runtime.placed[f"ray-worker-{index}"].environment for index in range(2)]
    assert [variables.get("OMP_NUM_THREADS") for variables in placed] == [None, "3"]


def test_every_node_starts_jobs_processes_as_it_is_told(runtime, deploy):
    asked = JobProcesses(niceness=15, allocator="system")
    deploy(lambda: _cluster(runtime, of_services={"jobProcesses": asked}).dashboard_url)
    for service in runtime.placed.values():
        assert service.environment["RAY_worker_niceness"] == "15"
        assert not {"RAY_LD_PRELOAD_ON_WORKERS", "MALLOC_CONF"} & set(service.environment)


def test_the_heads_proxy_is_published_and_nobody_waits_for_it(runtime, deploy):  # A46
    assert deploy(lambda: _cluster(runtime).serve_url) == "http://host.example:8000"
    head, worker = runtime.placed["ray-head"], runtime.placed["ray-worker-0"]
    (port,) = [port for port in head.ports if port.number == 8000]
    assert (port.setting, port.published) == ("servePort", True)
    assert 8000 not in {check.port for check in head.health}
    assert 8000 not in {port.number for port in worker.ports}


def test_no_two_nodes_share_a_port(runtime, deploy):
    deploy(lambda: _cluster(runtime).dashboard_url)
    numbers = [port.number for service in runtime.placed.values() for port in service.ports]
    assert len(numbers) == len(set(numbers)) == 9


def test_every_node_asks_for_the_token(runtime, deploy):  # F34
    deploy(lambda: _cluster(runtime).dashboard_url)
    for service in runtime.placed.values():
        assert service.environment["RAY_AUTH_MODE"] == "token"
        assert "ray-token" in service.secrets
        assert "canary" not in f"{service.arguments} {service.environment} {service.files}"


def test_users_of_a_node_are_asked_before_it_starts_anew(runtime, deploy):
    runtime.node_addresses = "127.0.0."
    deploy(lambda: _cluster(runtime).dashboard_url)
    for name, drains, own in (
        ("ray-head", False, ray_leave.EVERY),
        ("ray-worker-0", True, "127.0.0.1"),
    ):
        service = runtime.placed[name]
        assert service.files[service.leave.file] == source_text(ray_leave.FILE)
        assert (service.leave.drains, service.leave.arguments[1]) == (drains, own)
        assert str(service.leave.arguments[0]).startswith("127.0.0.0:")


def test_every_node_ends_with_its_raylet(runtime, deploy):  # F25
    deploy(lambda: _cluster(runtime).dashboard_url)
    for service in runtime.placed.values():
        assert service.environment[ray_start.HOOK] == "ray_start.begin"
        assert runtime.file(service.name, "ray_start.py").startswith(
            service.environment["PYTHONPATH"]
        )
        assert service.files["ray_start.py"] == source_text(ray_start.FILE)


def test_the_dashboard_knows_prometheus_only_where_it_runs(runtime, deploy):
    deploy(lambda: _cluster(runtime).dashboard_url)
    assert "RAY_PROMETHEUS_HOST" not in runtime.placed["ray-head"].environment
    told = NodeAddition(
        environment=lambda *_: {"RAY_PROMETHEUS_HOST": "http://p:9090"}, head_only=True
    )
    deploy(lambda: _cluster(runtime, additions=[told]).dashboard_url)
    assert runtime.placed["ray-head"].environment["RAY_PROMETHEUS_HOST"] == "http://p:9090"
    assert "RAY_PROMETHEUS_HOST" not in runtime.placed["ray-worker-0"].environment


def test_a_cluster_that_could_run_nothing_is_refused(runtime):
    with pytest.raises(ValueError, match="at least 1 CPU"):
        _cluster(runtime, workers=[])


def _store(runtime: Any, kind: StoreKind) -> Storage:
    made = stack(runtime)
    ObjectStore("object-store", kind, made)
    return made.storage


@pytest.fixture(params=sorted(object_store.STORES))
def kind(request) -> StoreKind:
    return object_store.STORES[request.param]


def test_who_reads_the_store_can_wait_for_it_and_end_before_it(runtime, deploy, kind):
    made: list[Storage] = []
    deploy(lambda: made.append(_store(runtime, kind)))
    needs = [type(each).__name__ for each in made[0].needs]
    assert needs == ["ComponentResource", "Bucket", "StoreUser"]  # its keys open nothing before


def test_root_credentials_reach_the_store_as_files_only(runtime, deploy, recorded, kind):  # F35
    storage = deploy(lambda: _store(runtime, kind).secret_key)
    store = runtime.placed[kind.name]
    files = [v for k, v in store.environment.items() if k.endswith("_FILE")]
    assert files == ["/run/secrets/root-user", "/run/secrets/root-password"]
    assert set(store.secrets) == {"root-user", "root-password"}
    root = "value of object-store-root"
    assert root not in f"{store.arguments} {store.environment}"
    assert storage == "value of object-store-training"
    users = recorded.of_type(":User")
    assert users["object-store-training-user"].inputs["rootPassword"] == root
    assert recorded.of_type(":Bucket")["object-store-bucket"].inputs["bucket"] == "ray"


def test_each_user_has_a_random_access_key_of_its_own(runtime, deploy, recorded, kind):  # F36
    access = deploy(lambda: _store(runtime, kind).access_key)
    assert access == "value of object-store-training-key"
    users = recorded.of_type(":User").values()
    keys = {user.inputs["accessKey"] for user in users} | {
        user.inputs["rootUser"] for user in users
    }
    drawn = {f"value of {name}" for name in recorded.of_type("cluster:Secret")}
    assert keys <= drawn
    assert len(keys) == len(users) + 1


def test_an_access_key_is_no_id_of_a_resource(monkeypatch):  # F35
    for provider in (minio_admin.StoreUserProvider(), versitygw_admin.StoreUserProvider()):
        monkeypatch.setattr(provider.calls, "write_user", lambda _: None)
        made = provider.create({**ROOT, "accessKey": "canary"})
        assert "canary" not in str(made.id)


def test_another_access_key_takes_the_place_of_the_old_one(monkeypatch):
    provider, done = minio_admin.StoreUserProvider(), []
    calls = provider.calls
    monkeypatch.setattr(calls, "write_user", lambda args: done.append(args.accessKey))
    monkeypatch.setattr(calls, "remove_user", lambda *called: done.append(called))
    olds = {**ROOT, "accessKey": "old", "rootPassword": "gone"}
    news = {**ROOT, "accessKey": "new"}
    assert not provider.diff("id", olds, news).replaces
    provider.update("id", olds, news)
    assert done == ["new", (minio_admin.StoreUserArgs.of(news), "old")]


def test_the_user_of_a_former_key_stays_until_nothing_needs_it(monkeypatch):  # F43
    provider, done = versitygw_admin.StoreUserProvider(), []
    calls = provider.calls
    monkeypatch.setattr(calls, "write_user", lambda args: done.append(args.accessKey))
    monkeypatch.setattr(
        calls, "remove_user", lambda args, key: done.append((args.rootPassword, key)) or True
    )
    olds, news = {**ROOT, "accessKey": "old"}, {**ROOT, "accessKey": "new", "former": "old"}
    diff = provider.diff("id", olds, news)
    assert (diff.replaces, bool(diff.delete_before_replace)) == (["accessKey"], False)
    provider.create(news)
    # The former user's removal was put off until there was another root.
    provider.update("id", news, news | {"rootPassword": "later"})
    provider.delete("id", olds)
    assert done == ["new", "new", ("later", "old")]
    assert not provider.diff("id", olds, news | {"accessKey": "old"}).changes  # alone


def test_the_training_user_reaches_one_bucket(kind):  # F36
    if kind is minio_store.KIND:
        statements = minio_store.bucket_policy("ray")["Statement"]
        assert {"Effect": "Deny", "Action": ["admin:*"]} in statements
    else:
        statements = store_kind.statements("ray")
    allowed = [statement for statement in statements if statement["Effect"] == "Allow"]
    actions = {action for statement in allowed for action in statement["Action"]}
    assert {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"} <= actions
    assert not [action for action in actions if "*" in action]
    named = [statement["Resource"] for statement in allowed]
    resources = {each for one in named for each in ([one] if isinstance(one, str) else one)}
    assert resources == {"arn:aws:s3:::ray", "arn:aws:s3:::ray/*"}


@pytest.mark.parametrize("name", ["", "Ray", "ray_head", "-ray", "ray-", "r" * 41, "../ray"])
def test_service_names_are_checked(name):  # F39
    with pytest.raises(ValueError, match="service name"):
        Service(
            name=name,
            program="ray",
            arguments=[],
            ports=[],
            health=[HealthCheck(port=1024, path="/")],
        )


def test_a_service_without_health_check_is_refused():
    with pytest.raises(ValueError, match="no health check"):
        Service(name="ray", program="ray", arguments=[], ports=[], health=[])
