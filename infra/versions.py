"""Versions of the tools that this project fetches or builds itself, each pinned.

Python packages, Ray among them, are pinned by requirements/.
"""

from importlib.metadata import version

# MinIO publishes source only, and its repository is archived: this is the last commit.
# renovate: datasource=go depName=github.com/minio/minio
MINIO = "v0.0.0-20260212201848-7aac2a2c5b7c"
MINIO_MODULE = "github.com/minio/minio"

# The least Go that builds the MinIO above (its go.mod).
GO_FOR_MINIO = (1, 24)

# Images that are pulled. docker/digests.json pins them to the byte, once `make digests` has asked
# the registries.
# renovate: datasource=docker depName=prom/prometheus
PROMETHEUS_IMAGE = "prom/prometheus:v3.14.0"
# renovate: datasource=docker depName=grafana/grafana
GRAFANA_IMAGE = "grafana/grafana:13.2.0"
# renovate: datasource=docker depName=haproxy
GATEWAY_IMAGE = "haproxy:3.4.4"  # 3.4 has long-term support

# Python of Debian 12, on which docker/ray builds; images of another base may have another.
IMAGE_PYTHON = "3.11"

# Processes run in this environment, so what is installed here is what they run.
RAY = version("ray")
