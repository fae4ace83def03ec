"""Versions of the tools that this project fetches or builds itself, each pinned.

Python packages, Ray among them, are pinned by requirements/.
"""

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
BUILD_ARGUMENTS = {
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

# Python of Debian 12, on which docker/ray builds, and those that other bases may have.
IMAGE_PYTHON = "3.11"
IMAGE_PYTHONS = (IMAGE_PYTHON, "3.12", "3.13")

# Processes run in this environment, so they run the version installed here. "" while it is being
# installed: Go builds a store at the same time.
RAY = next((found.version for found in distributions(name="ray")), "")
