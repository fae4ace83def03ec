"""Grafana: shows Prometheus's figures, on Ray's own dashboards and one of the stack's.

It keeps nothing: data source and dashboards are files of the stack, and its database ends with its
container, so the generated password always applies.
"""

import json
from pathlib import PurePosixPath
from typing import Any

import pulumi
import yaml

from cluster import dashboard, monitoring, ray_node
from cluster.descriptor import Component, Descriptor, Endpoint, Limit, PortSetting, Stack
from cluster.inputs import join, lift
from cluster.model import setting
from cluster.ray_node import NodeAddition
from cluster.secret import PASSWORD_BYTES, Secret
from cluster.service import HealthCheck, Port, Probe, Runtime, Service, Volume

SERVICE = "grafana"
# renovate: datasource=docker depName=grafana/grafana
IMAGE = "grafana/grafana:13.2.0"
PORT = "grafanaPort"
ADMIN = "admin"
PASSWORD_FILE = "admin-password"  # noqa: S105 (a file's name)
# Grafana looks for provisioning/datasources/*.yaml and provisioning/dashboards/*.yaml.
PROVISIONING = "provisioning"
DATASOURCES_FILE = f"{PROVISIONING}/datasources/prometheus.yaml"
PROVIDERS_FILE = f"{PROVISIONING}/dashboards/trainyard.yaml"
DASHBOARD_FILE = "dashboards/trainyard.json"
DATASOURCE_UID = "prometheus"
# Where the Ray head writes dashboards, and how Grafana has the same folder.
DASHBOARDS = Volume(name="dashboards", shared=True)
DASHBOARDS_READ_ONLY = Volume(name="dashboards", shared=True, read_only=True)
DATASOURCE = "Prometheus"  # name of the data source that these dashboards ask for
RESCAN_SECONDS = 30  # the head may write its dashboards after Grafana has started


class Grafana(Component):
    """Grafana."""

    def declare(self, stack: Stack) -> None:
        runtime, port = stack.runtime, stack.port(PORT)
        public = f"http://{runtime.public(SERVICE, port)}"
        ray = f"http://{runtime.public(ray_node.HEAD, stack.port('dashboardPort'))}"
        drawn = Secret(f"{self.name}-{ADMIN}", PASSWORD_BYTES, self.child)
        self.password = pulumi.Output.secret(drawn.value)
        own = dashboard.dashboard(ray, of_store=bool(stack.storage.metrics))
        runtime.place(
            Service(
                name=SERVICE,
                program="grafana",
                arguments=[],
                environment=environment(stack, public),
                files={
                    DATASOURCES_FILE: lift(
                        lambda url: yaml.safe_dump(datasources(url)), stack.prometheus or ""
                    ),
                    PROVIDERS_FILE: yaml.safe_dump(providers(runtime)),
                    DASHBOARD_FILE: json.dumps(own, indent=1),
                },
                secrets={PASSWORD_FILE: self.password},
                volumes=[DASHBOARDS_READ_ONLY],
                ports=[Port(number=port, setting=PORT, published=True)],
                health=[HealthCheck(port=port, path="/api/health")],
                probe=Probe.WGET,
            ),
            self.child,
        )
        inside = join("http://", runtime.address(SERVICE, port))
        stack.additions.append(for_head(inside, public))
        self.export(stack, ENDPOINT, runtime.public(SERVICE, port))


def environment(stack: Stack, public: str) -> dict[str, pulumi.Input[str]]:
    """Return Grafana's settings: its variables are named GF_<section>_<key>.

    `public` is its URL for browsers.
    """
    runtime, port = stack.runtime, stack.port(PORT)
    return {
        "GF_SERVER_HTTP_ADDR": runtime.listen_address(SERVICE),
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_SERVER_ROOT_URL": f"{public}/",
        "GF_PATHS_PROVISIONING": runtime.file(SERVICE, PROVISIONING),
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": runtime.file(SERVICE, DASHBOARD_FILE),
        "GF_SECURITY_ADMIN_USER": ADMIN,
        "GF_SECURITY_ADMIN_PASSWORD__FILE": runtime.file(SERVICE, PASSWORD_FILE),
        # The Ray dashboard shows panels in frames. Cookies go there only from pages of the same
        # host name, so that a foreign page can frame no more than the login form.
        "GF_SECURITY_ALLOW_EMBEDDING": "true",
        "GF_SECURITY_COOKIE_SAMESITE": "lax",
        # Cookies ignore ports: a login at one stack would end the login at another.
        "GF_AUTH_LOGIN_COOKIE_NAME": f"grafana_session_{port}",
        "GF_AUTH_ANONYMOUS_ENABLED": "false",
        "GF_USERS_ALLOW_SIGN_UP": "false",
        "GF_USERS_ALLOW_ORG_CREATE": "false",
        "GF_METRICS_ENABLED": "false",  # they are shown to everybody, logged in or not
        # Nothing is requested from, or sent to, the outside network.
        "GF_SECURITY_DISABLE_GRAVATAR": "true",
        "GF_SNAPSHOTS_EXTERNAL_ENABLED": "false",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
        "GF_ANALYTICS_FEEDBACK_LINKS_ENABLED": "false",
        "GF_NEWS_NEWS_FEED_ENABLED": "false",
        "GF_PLUGINS_PLUGIN_ADMIN_ENABLED": "false",
        # At each start Grafana 13 unloads the image's plugins, Prometheus among them, to install
        # newer ones from the network; if that fails, they stay unloaded.
        "GF_PLUGINS_PREINSTALL_DISABLED": "true",
    }


def datasources(prometheus: str) -> dict[str, Any]:
    """Return the provisioned data source: Ray's dashboards ask for it by its name."""
    return {
        "apiVersion": 1,
        "datasources": [
            {
                "name": DATASOURCE,
                "uid": DATASOURCE_UID,
                "type": "prometheus",
                "access": "proxy",
                "url": prometheus,
                "isDefault": True,
                "editable": False,
                "jsonData": {
                    "httpMethod": "POST",
                    "timeInterval": monitoring.SCRAPE_INTERVAL,  # rates look back at least so far
                },
            }
        ],
    }


def providers(runtime: Runtime) -> dict[str, Any]:
    """Return the providers of dashboards: the stack's own, and the ones that the head writes."""
    own = str(PurePosixPath(runtime.file(SERVICE, DASHBOARD_FILE)).parent)
    ray = runtime.volume(SERVICE, DASHBOARDS_READ_ONLY)
    return {
        "apiVersion": 1,
        "providers": [
            {
                "name": name,
                "folder": name,
                "type": "file",
                "disableDeletion": True,
                "allowUiUpdates": False,
                "updateIntervalSeconds": RESCAN_SECONDS,
                "options": {"path": path},
            }
            for name, path in (("Trainyard", own), ("Ray", ray))
        ],
    }


def for_head(inside: pulumi.Input[str], outside: str) -> NodeAddition:
    """Return the addition that tells the Ray head Grafana's URL, and where to write dashboards.

    The URL inside is for services, that outside for browsers: Ray's dashboard shows its panels.
    """
    return NodeAddition(
        environment=lambda runtime, service: {
            "RAY_GRAFANA_HOST": inside,
            "RAY_GRAFANA_IFRAME_HOST": outside,
            "RAY_PROMETHEUS_NAME": DATASOURCE,
            "RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR": runtime.volume(service, DASHBOARDS),
        },
        volumes=[DASHBOARDS],
        head_only=True,
    )


def declare_grafana(stack: Stack) -> None:
    """Declare Grafana in a stack with Prometheus."""
    if stack.prometheus is not None:
        Grafana("grafana", stack)


ENDPOINT = Endpoint(title="Grafana", url="grafanaUrl", login="grafanaPassword", user=ADMIN)
DESCRIPTOR = Descriptor(
    program=SERVICE,
    declare=declare_grafana,
    image=IMAGE,
    ports=(PortSetting(PORT, 3000, "Grafana"),),
    limit=Limit(memory_mib=1024, processes=1024),
    settings={
        "grafana": (
            bool,
            setting(True, "Whether Grafana runs; false where memory is short (docker, kubernetes)"),
        ),
    },
    wanted=lambda settings: bool(settings.of_services["grafana"]),
    endpoints=(ENDPOINT,),
)
