"""Grafana's configuration, and the Ray head's for it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from cluster import grafana, monitoring, ray_cluster
from cluster.descriptor import Stack
from cluster.grafana import Grafana
from cluster.ray_node import NodeAddition
from tests.unit.cluster.conftest import HEAD, stack


def _stack(runtime: Any) -> Stack:
    return stack(runtime, prometheus="http://prometheus.internal:9090")


@pytest.fixture
def placed(runtime, deploy) -> Any:
    """Grafana as it is placed on the runtime."""
    deploy(lambda: Grafana("grafana", _stack(runtime)).url)
    return runtime.placed["grafana"]


def test_the_password_is_generated_and_read_from_a_file(runtime, deploy):  # F35 F37
    made = _stack(runtime)

    def program() -> Any:
        password = Grafana("grafana", made).password
        return {"password": password, "file": runtime.placed["grafana"].secrets["admin-password"]}

    result = deploy(program)
    assert result == {"password": "value of grafana-admin", "file": "value of grafana-admin"}
    service = runtime.placed["grafana"]
    variable = service.environment["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    assert variable == "/run/secrets/admin-password"
    assert "GF_SECURITY_ADMIN_PASSWORD" not in service.environment
    assert "value of" not in f"{service.arguments} {service.environment} {service.files}"
    (addition,) = made.additions
    told = addition.environment(runtime, "ray-head")
    assert told["RAY_GRAFANA_HOST"] == "http://grafana.internal:3000"
    assert told["RAY_GRAFANA_IFRAME_HOST"] == "http://host.example:3000"


def test_strangers_see_nothing(placed):  # F37
    for key in ("AUTH_ANONYMOUS_ENABLED", "USERS_ALLOW_SIGN_UP", "USERS_ALLOW_ORG_CREATE"):
        assert placed.environment[f"GF_{key}"] == "false"
    assert placed.environment["GF_METRICS_ENABLED"] == "false"


def test_its_panels_may_be_framed(placed):  # D12
    assert placed.environment["GF_SECURITY_ALLOW_EMBEDDING"] == "true"
    assert placed.environment["GF_SECURITY_COOKIE_SAMESITE"] == "lax"
    assert placed.environment["GF_SERVER_ROOT_URL"] == "http://host.example:3000/"


def test_it_asks_nothing_of_the_network(placed):
    asking = {
        "GF_SECURITY_DISABLE_GRAVATAR": "true",
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
        "GF_PLUGINS_PLUGIN_ADMIN_ENABLED": "false",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_NEWS_NEWS_FEED_ENABLED": "false",
        "GF_SNAPSHOTS_EXTERNAL_ENABLED": "false",
    }
    assert asking.items() <= placed.environment.items()


def test_grafana_finds_what_it_is_provisioned_with(placed):
    folder = placed.environment["GF_PATHS_PROVISIONING"]
    found = {f"/run/secrets/{name}": yaml.safe_load(text) for name, text in placed.files.items()}
    datasources = found[f"{folder}/datasources/prometheus.yaml"]
    providers = found[f"{folder}/dashboards/trainyard.yaml"]
    assert datasources["apiVersion"] == providers["apiVersion"] == 1
    (source,) = datasources["datasources"]
    assert source["name"] == grafana.DATASOURCE
    assert source["type"] == "prometheus"
    assert source["access"] == "proxy"
    assert source["url"] == "http://prometheus.internal:9090"
    assert source["isDefault"]
    assert source["jsonData"]["timeInterval"] == monitoring.SCRAPE_INTERVAL
    own, ray = providers["providers"]
    assert {own["type"], ray["type"]} == {"file"}
    assert own["name"] != ray["name"]
    home = placed.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{own['options']['path']}/trainyard.json"
    assert home in found
    assert ray["options"]["path"] == "/volumes/dashboards"
    for provider in (own, ray):  # edits by hand would be gone with the container
        assert not provider["allowUiUpdates"]
        assert provider["disableDeletion"]


def test_the_dashboard_links_to_ray(placed):
    links = json.loads(placed.files["dashboards/trainyard.json"])["links"]
    assert links[0]["url"] == "http://host.example:8265"


@pytest.fixture
def head(runtime, deploy) -> Callable[..., Any]:
    """Place a head with or without Grafana."""

    def place(*additions: NodeAddition) -> Any:
        found: list[Any] = []
        made = stack(runtime, workers=[HEAD], additions=[*additions])
        deploy(lambda: found.append(ray_cluster.head(made)))
        return found[0]

    return place


def test_the_ray_dashboard_knows_both_addresses_of_grafana(head):  # D12 D24
    service = head(grafana.for_head("http://grafana:3000", "http://host.example:3000"))
    wanted = {
        "RAY_GRAFANA_HOST": "http://grafana:3000",
        "RAY_GRAFANA_IFRAME_HOST": "http://host.example:3000",
        "RAY_PROMETHEUS_NAME": grafana.DATASOURCE,
        "RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR": "/volumes/dashboards",
    }
    assert wanted.items() <= service.environment.items()


def test_head_and_grafana_share_the_folder_of_the_dashboards(head, placed):
    service = head(grafana.for_head("http://grafana:3000", "http://host.example:3000"))
    (written,) = [volume for volume in service.volumes if volume.name == "dashboards"]
    (read,) = placed.volumes
    assert written.name == read.name
    assert written.shared
    assert read.shared
    assert read.read_only
    assert not written.read_only


def test_without_grafana_the_ray_dashboard_shows_no_panels(head):
    service = head()
    assert service.environment["RAY_GRAFANA_HOST"] == "DISABLED"
    assert [key for key in service.environment if "GRAFANA" in key] == ["RAY_GRAFANA_HOST"]
    assert "dashboards" not in [volume.name for volume in service.volumes]
