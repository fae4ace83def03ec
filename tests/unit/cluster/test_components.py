"""What the components declare, under mocks."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cluster import object_store, ray_watch
from cluster.object_store import ObjectStore, ObjectStoreArgs, Storage
from cluster.ray_cluster import RayCluster, RayClusterArgs
from cluster.ray_node import NodeResources, RayPorts
from cluster.ray_worker import RayWorkerArgs
from cluster.service import HealthCheck, Service

Deploy = Callable[[Callable[[], Any]], Any]
PORTS = RayPorts(
    dashboard=8265,
    gcs=6379,
    client=10001,
    serve=8000,
    agent=27365,
    autoscaler_metrics=27217,
    dashboard_metrics=27227,
)
HEAD = NodeResources(cpus=0, gpus=0, memory_mib=1024, object_store_mib=128)
WORKER = NodeResources(cpus=2, gpus=1, memory_mib=2048, object_store_mib=256)


def _cluster(runtime: Any, **changes: Any) -> RayCluster:
    values: dict[str, Any] = {
        "runtime": runtime,
        "head": HEAD,
        "workers": [WORKER, WORKER],
        "ports": PORTS,
        "token": "canary",
        "serve_token": "canary-serve",
        "storage": Storage(url="file:///srv/results"),
        "tracking": None,
        "prometheus_url": None,
        "grafana": None,
        "gpus": [(), ()],
        "has_dataset": False,
    }
    return RayCluster("ray", RayClusterArgs(**(values | changes)))


def test_a_cluster_is_a_head_and_its_workers(runtime: Any, deploy: Deploy, recorded: Any) -> None:
    nodes = deploy(lambda: _cluster(runtime).nodes)
    assert list(runtime.placed) == ["ray-head", "ray-worker-0", "ray-worker-1"]
    assert [node["name"] for node in nodes] == list(runtime.placed)
    assert nodes[1] == {
        "name": "ray-worker-0",
        "cpus": 2,
        "gpus": 1,
        "memoryMib": 2048,
        "objectStoreMib": 256,
        "resources": {},
    }
    tokens = {args.typ for args in recorded.created}
    assert {"trainyard:cluster:RayCluster", "trainyard:cluster:RayHead"} <= tokens
    assert "trainyard:cluster:RayWorker" in tokens


def test_workers_join_at_the_runtimes_address_of_the_head(runtime: Any, deploy: Deploy) -> None:
    url = deploy(lambda: _cluster(runtime).dashboard_url)
    assert url == "http://host.example:8265"
    assert "--address=ray-head.internal:6379" in runtime.placed["ray-worker-1"].arguments
    assert "--dashboard-host=0.0.0.0" in runtime.placed["ray-head"].arguments


def test_the_heads_proxy_is_published_and_nobody_waits_for_it(  # A46
    runtime: Any, deploy: Deploy
) -> None:
    assert deploy(lambda: _cluster(runtime).serve_url) == "http://host.example:8000"
    head, worker = runtime.placed["ray-head"], runtime.placed["ray-worker-0"]
    (port,) = [port for port in head.ports if port.number == 8000]
    assert (port.setting, port.published) == ("servePort", True)
    assert 8000 not in {check.port for check in head.health}
    assert 8000 not in {port.number for port in worker.ports}


def test_no_two_nodes_share_a_port(runtime: Any, deploy: Deploy) -> None:
    deploy(lambda: _cluster(runtime).dashboard_url)
    numbers = [port.number for service in runtime.placed.values() for port in service.ports]
    assert len(numbers) == len(set(numbers)) == 9


def test_every_node_asks_for_the_token(runtime: Any, deploy: Deploy) -> None:  # F34
    deploy(lambda: _cluster(runtime).dashboard_url)
    for service in runtime.placed.values():
        assert service.environment["RAY_AUTH_MODE"] == "token"
        assert "ray-token" in service.secrets
        assert "canary" not in f"{service.arguments} {service.environment} {service.files}"


def test_every_node_ends_with_its_raylet(runtime: Any, deploy: Deploy) -> None:  # F25
    deploy(lambda: _cluster(runtime).dashboard_url)
    for service in runtime.placed.values():
        assert service.environment[ray_watch.HOOK] == "ray_watch.watch"
        assert runtime.file(service.name, "ray_watch.py").startswith(
            service.environment["PYTHONPATH"]
        )
        assert service.files == {"ray_watch.py": ray_watch.text()}


def test_the_dashboard_knows_prometheus_only_where_it_runs(runtime: Any, deploy: Deploy) -> None:
    deploy(lambda: _cluster(runtime).dashboard_url)
    assert "RAY_PROMETHEUS_HOST" not in runtime.placed["ray-head"].environment
    deploy(lambda: _cluster(runtime, prometheus_url="http://p:9090").dashboard_url)
    assert runtime.placed["ray-head"].environment["RAY_PROMETHEUS_HOST"] == "http://p:9090"


def test_a_cluster_that_could_run_nothing_is_refused(runtime: Any) -> None:
    with pytest.raises(ValueError, match="at least 1 CPU"):
        _cluster(runtime, workers=[], gpus=[], token="t")


def test_a_negative_worker_is_refused(runtime: Any) -> None:
    with pytest.raises(ValueError, match="-1 must be at least 0"):
        RayWorkerArgs(
            runtime=runtime,
            index=-1,
            resources=WORKER,
            ports=PORTS,
            token="t",
            serve_token="s",
            storage=Storage(url=""),
            tracking=None,
            gpus=(),
            has_dataset=False,
        )


def _store(runtime: Any) -> ObjectStore:
    args = ObjectStoreArgs(runtime=runtime, bucket="ray", port=9000, console_port=9001)
    return ObjectStore("object-store", args)


def test_root_credentials_reach_minio_as_files_only(  # F35
    runtime: Any, deploy: Deploy, recorded: Any
) -> None:
    storage = deploy(lambda: _store(runtime).storage.secret_key)
    minio = runtime.placed["minio"]
    assert minio.environment["MINIO_ROOT_PASSWORD_FILE"] == "/run/secrets/root-password"
    assert set(minio.secrets) == {"root-user", "root-password"}
    root = "value of object-store-root"
    assert root not in f"{minio.arguments} {minio.environment}"
    assert storage == "value of object-store-training"
    users = recorded.of_type(":User")
    assert users["object-store-training-user"].inputs["rootPassword"] == root
    assert recorded.of_type(":Bucket")["object-store-bucket"].inputs["bucket"] == "ray"


def test_the_training_user_reaches_one_bucket() -> None:  # F36
    statements = object_store.bucket_policy("ray")["Statement"]
    allowed = [statement for statement in statements if statement["Effect"] == "Allow"]
    actions = {action for statement in allowed for action in statement["Action"]}
    assert {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"} <= actions
    assert not [action for action in actions if "*" in action]
    resources = {resource for statement in allowed for resource in statement["Resource"]}
    assert resources == {"arn:aws:s3:::ray", "arn:aws:s3:::ray/*"}
    assert {"Effect": "Deny", "Action": ["admin:*"]} in statements


def test_one_port_for_two_is_refused(runtime: Any) -> None:
    with pytest.raises(ValueError, match="both listen on port 9000"):
        ObjectStoreArgs(runtime=runtime, bucket="ray", port=9000, console_port=9000)


@pytest.mark.parametrize("name", ["", "Ray", "ray_head", "-ray", "ray-", "r" * 41, "../ray"])
def test_service_names_are_checked(name: str) -> None:  # F39
    with pytest.raises(ValueError, match="service name"):
        Service(
            name=name,
            program="ray",
            arguments=[],
            ports=[],
            health=[HealthCheck(port=1024, path="/")],
        )


def test_a_service_without_health_check_is_refused() -> None:
    with pytest.raises(ValueError, match="no health check"):
        Service(name="ray", program="ray", arguments=[], ports=[], health=[])


def test_policies_are_json() -> None:
    assert json.loads(json.dumps(object_store.METRICS_POLICY)) == object_store.METRICS_POLICY
