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

# The nodes run in this environment, so what is installed here is what they run.
RAY = version("ray")
