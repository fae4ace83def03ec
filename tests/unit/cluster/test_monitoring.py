"""Prometheus' targets, and its tokens for them."""

import dataclasses
from typing import Any

import jwt
import pytest
import yaml

from cluster import alerting, minio_store, monitoring, versitygw_store
from cluster.monitoring import Monitoring
from cluster.storage import Storage
from tests import promtools, ran
from tests.unit.cluster.conftest import stack

FOLDER = Storage(url="file:///srv/results")
STORE = Storage(
    url="s3://ray",
    endpoint="http://e",
    internal="minio:9000",
    bucket="ray",
    metrics=minio_store.KIND.metrics,
    metrics_token="store-canary",
)


def test_prometheus_reads_its_tokens_from_files(runtime, deploy):  # F35
    def program() -> Any:
        made = stack(runtime, STORE)
        url = Monitoring("monitoring", made).url
        files = runtime.placed["prometheus"].secrets
        return {"url": url, "internal": made.prometheus, "files": files}

    result = deploy(program)
    assert result["url"] == "http://host.example:9090"
    assert result["internal"] == "http://prometheus.internal:9090"
    text = runtime.placed["prometheus"].files["prometheus.yml"]
    assert "canary" not in text
    ray, store, buckets = yaml.safe_load(text)["scrape_configs"]
    discovery = ray["http_sd_configs"][0]
    assert discovery["url"] == "http://ray-head.internal:8265/api/prometheus/sd"
    assert discovery["authorization"]["credentials_file"] == "/run/secrets/ray-token"
    assert store["metrics_path"] == "/minio/v2/metrics/cluster"
    assert buckets["metrics_path"] == "/minio/v2/metrics/bucket"
    for job in (store, buckets):
        assert job["static_configs"] == [{"targets": ["minio:9000"]}]
        assert job["authorization"] == {"credentials_file": "/run/secrets/object-store-token"}
    assert result["files"]["object-store-token"] == "store-canary"
    assert "store-canary" not in text


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_minios_token_is_its_monitoring_users_and_the_same_each_time():
    token = minio_store.token("some-user", "k" * 40)
    assert token == minio_store.token("some-user", "k" * 40)
    claims = jwt.decode(token, "k" * 40, algorithms=["HS512"], issuer="prometheus")
    assert claims["sub"] == "some-user"


@pytest.mark.parametrize("metrics", [{}, versitygw_store.KIND.metrics])
def test_without_figures_of_a_store_prometheus_scrapes_ray_only(runtime, deploy, metrics):
    storage = dataclasses.replace(STORE, metrics=metrics, metrics_token="")
    deploy(lambda: Monitoring("monitoring", stack(runtime, storage)).url)
    placed = runtime.placed["prometheus"]
    jobs = yaml.safe_load(placed.files["prometheus.yml"])["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["ray"]
    assert set(placed.secrets) == {"ray-token"}


def test_what_could_change_or_end_prometheus_stays_off(runtime, deploy):  # F37
    deploy(lambda: Monitoring("monitoring", stack(runtime, STORE)).url)
    flags = [argument.partition("=")[0] for argument in runtime.placed["prometheus"].arguments]
    assert flags == [
        "--config.file",
        "--storage.tsdb.path",
        "--storage.tsdb.retention.time",
        "--web.listen-address",
    ]


@promtools.needs("promtool")
@pytest.mark.parametrize("storage", [FOLDER, STORE])
def test_prometheus_accepts_its_configuration(runtime, tmp_path, storage):
    for name in (monitoring.RAY_TOKEN_FILE, monitoring.STORE_TOKEN_FILE):
        (tmp_path / name).write_text("token")
    runtime.file = lambda _service, name: str(tmp_path / name)
    config = tmp_path / "prometheus.yml"
    known = ("head:8265", str(storage.internal), "alertmanager:9093", "idle-end:8768")
    config.write_text(yaml.safe_dump(monitoring.configuration(runtime, storage.metrics, *known)))
    (tmp_path / monitoring.RULES_FILE).write_text(alerting.rules(3, ""))
    ran.output([promtools.find("promtool"), "check", "config", config])
