"""Versions of the tools that this project fetches or builds itself, each pinned.

Python packages, Ray among them, are pinned by requirements/.
"""

import sys
from collections.abc import Mapping
from importlib.metadata import distributions

# MinIO publishes source only, and its repository is archived: this is the last commit.
# renovate: datasource=go depName=github.com/minio/minio
MINIO = "v0.0.0-20260212201848-7aac2a2c5b7c"
MINIO_MODULE = "github.com/minio/minio"
MINIO_SUM = "h1:/qdoYujxF5MBLDMVLeiYJ/7fBa1HikX39Dvzb9Ji8pA="  # as Go's checksum database has it

# renovate: datasource=go depName=github.com/versity/versitygw
VERSITYGW = "v1.8.0"
VERSITYGW_MODULE = "github.com/versity/versitygw"
VERSITYGW_SUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="

# Of the images in docker/ that are built from them.
_OF_STORES = {
    "MINIO_VERSION": MINIO,
    "MINIO_SUM": MINIO_SUM,
    "VERSITYGW_VERSION": VERSITYGW,
    "VERSITYGW_SUM": VERSITYGW_SUM,
}

# The oldest Go that builds both (their go.mod).
GO_FOR_STORES = (1, 25)

# 3.16.0: the module's minor version is the program's major and minor in one number.
# renovate: datasource=go depName=github.com/prometheus/prometheus
PROMETHEUS = "v0.316.0"
PROMETHEUS_MODULE = "github.com/prometheus/prometheus"
PROMETHEUS_SUM = "h1:f1GRFerhTMKQma+awCoC9T820ecWeGSdF+xAlMHzZzM="

# renovate: datasource=go depName=github.com/prometheus/alertmanager
ALERTMANAGER = "v0.34.2"
ALERTMANAGER_MODULE = "github.com/prometheus/alertmanager"
ALERTMANAGER_SUM = "h1:4oOnHs4J41X9n+7MucFjA3I5i5MtasjWTnIY27q5Qkw="

GO_FOR_MONITORING = (1, 26)

# The base of the images for each Python: its distribution updates it.
IMAGE_BASES = {
    "3.11": "debian:bookworm-slim",
    "3.12": "ubuntu:24.04",
    "3.13": "debian:trixie-slim",
}
_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
# That of this environment, whose `train` the images have to match.
IMAGE_PYTHON = _HERE if _HERE in IMAGE_BASES else "3.11"


def build_arguments(python: str, changes: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments of all images in docker/, with the user's changes."""
    chosen = {"BASE_IMAGE": IMAGE_BASES[python], "IMAGE_PYTHON": python}
    return {**_OF_STORES, **chosen, **changes}


# Processes run in this environment, so they run the version installed here. "" while it is being
# installed: Go builds a store at the same time.
RAY = next((found.version for found in distributions(name="ray")), "")
