"""Flags, environment and secret files of Ray nodes."""

from typing import Any

import pytest

from cluster import ray_node, tracking
from cluster.job_processes import JobProcesses
from cluster.ray_node import NodeAddition, NodeResources
from cluster.storage import Storage
from tests.unit.cluster.conftest import PORTS
from trainyard import usage

NODE = NodeResources(
    cpus=2, gpus=0.5, memory_mib=1024, object_store_mib=100, resources={"tpu": 4, "a": 1}
)
STORE = Storage(
    url="s3://ray",
    endpoint="http://host.example:9000",
    internal="minio.internal:9000",
    bucket="ray",
    access_key="training",
    secret_key="canary",
)


def _tracked() -> NodeAddition:
    return tracking.for_nodes("http://mlflow.internal:5000", "canary")


def _environment(runtime: Any, storage: Storage = STORE, *additions: NodeAddition) -> Any:
    processes = JobProcesses().environment
    return ray_node.environment("ray-head", runtime, PORTS, storage, additions, processes)


def test_flags_say_what_the_node_offers(runtime):
    flags = ray_node.common_flags("ray-worker-0", 1, runtime, NODE, PORTS)
    assert "--num-cpus=2" in flags
    assert "--num-gpus=0.5" in flags
    assert f"--memory={1024 * 1024 * 1024}" in flags
    assert f"--object-store-memory={100 * 1024 * 1024}" in flags
    assert '--resources={"a": 1, "tpu": 4}' in flags
    assert "--dashboard-agent-listen-port=27366" in flags
    assert "--temp-dir=/volumes/ray" in flags


def test_no_usage_statistics(runtime):  # A28
    assert "--disable-usage-stats" in ray_node.common_flags("ray-head", 0, runtime, NODE, PORTS)
    environment = _environment(runtime)
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    assert environment["RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE"] == "1"  # B26
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_jobs_have_the_niceness_of_all_else_and_rays_jemalloc(runtime: Any) -> None:  # P7
    found = _environment(runtime)
    assert found["RAY_worker_niceness"] == "0"
    assert found["RAY_LD_PRELOAD_ON_WORKERS"] == "1"
    assert "dirty_decay_ms:10000" in found["MALLOC_CONF"]


@pytest.mark.parametrize(("prefix", "given"), [("10.0.0.", ["10.0.0.3"]), ("", [])])
def test_the_node_address_is_the_runtimes(runtime, prefix, given):
    runtime.node_addresses = prefix
    flags = ray_node.common_flags("ray-worker-2", 3, runtime, NODE, PORTS)
    named = [flag for flag in flags if flag.startswith("--node-ip-address=")]
    assert named == [f"--node-ip-address={address}" for address in given]


def test_jobs_find_the_bucket_and_no_secret_in_the_environment(runtime):  # F35
    environment = _environment(runtime)
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/ray-token"
    assert environment["AWS_ENDPOINT_URL"] == "http://minio.internal:9000"
    assert environment["AWS_SHARED_CREDENTIALS_FILE"] == "/run/secrets/aws-credentials"
    assert environment["TRAINYARD_STORAGE_URL"] == "s3://ray"
    assert "canary" not in str(environment)


def test_a_folder_needs_no_credentials(runtime, deploy):
    folder = Storage(url="file:///srv/results")
    environment = _environment(runtime, folder)
    assert not [name for name in environment if name.startswith("AWS_")]
    files = deploy(lambda: ray_node.secret_files("token", folder, [], serve_token="s"))
    assert files == {"ray-token": "token", "serve-token": "s"}


def test_credentials_are_written_as_aws_reads_them(deploy):
    files = deploy(lambda: ray_node.secret_files("token", STORE, [], serve_token="s"))
    assert set(files) == {"ray-token", "serve-token", "aws-credentials"}
    assert files["aws-credentials"].splitlines() == [
        "[default]",
        "aws_access_key_id = training",
        "aws_secret_access_key = canary",
    ]


def test_jobs_find_the_tracking_server_and_its_password_in_a_file(runtime, deploy):  # A45 F35
    environment = deploy(lambda: _environment(runtime, STORE, _tracked()))
    assert environment["MLFLOW_TRACKING_URI"] == "http://mlflow.internal:5000"
    named = environment["TRAINYARD_TRACKING_CREDENTIALS_FILE"]
    assert named == "/run/secrets/mlflow-credentials"
    assert "canary" not in str(environment)
    files = deploy(lambda: ray_node.secret_files("token", STORE, [_tracked()], serve_token="s"))
    assert files["mlflow-credentials"].splitlines() == [
        "[mlflow]",
        "mlflow_tracking_username = admin",
        "mlflow_tracking_password = canary",
    ]


def test_what_serves_is_told_where_the_heads_proxy_listens(runtime):
    environment = _environment(runtime)
    assert environment["TRAINYARD_SERVE_HOST"] == runtime.listen_address("ray-head")
    assert environment["TRAINYARD_SERVE_PORT"] == "8000"
    assert environment[usage.DASHBOARD_VARIABLE] == runtime.address("ray-head", 8265)
    assert environment["TRAINYARD_SERVE_TOKEN_FILE"] == "/run/secrets/serve-token"
