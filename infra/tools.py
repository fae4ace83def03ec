"""The programs that the services of this machine need, and what happens where one is missing."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi

from infra import versions
from infra.hosts import local
from infra.hosts.go_tool import GoTool

DATASET = Path(__file__).resolve().parents[1] / "docker" / "dataset" / "dataset.py"
GO = ".".join(str(part) for part in versions.GO_FOR_MINIO)
HAVE_MINIO = f"put a minio on PATH, or install Go {GO} or later (go.dev/dl) to have it built"


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Paths of the programs, by the name that services know them by.

    Attributes:
        paths: executables; "minio" and "prometheus" are missing where they are not to be had.
    """

    paths: Mapping[str, pulumi.Input[str]]

    @property
    def minio(self) -> bool:
        """Whether MinIO is to run."""
        return "minio" in self.paths

    @property
    def prometheus(self) -> bool:
        """Whether Prometheus is to run."""
        return "prometheus" in self.paths


def find(object_store: str) -> Tools:
    """Find the programs; declare the building of MinIO where Go has to do that.

    Args:
        object_store: the setting objectStore: auto, minio or directory.

    Raises:
        pulumi.RunError: minio is asked for and cannot be had.
    """
    paths = {
        **{name: local.environment_program(name) for name in ("ray", "mlflow")},
        "dataset": str(DATASET),
        **_minio(object_store),
    }
    if prometheus := shutil.which("prometheus"):
        paths["prometheus"] = prometheus
    else:
        pulumi.log.warn(
            "Monitoring is off: no prometheus on PATH. To have it, install your distribution's "
            "package prometheus, or the program from prometheus.io/download"
        )
    return Tools(paths=paths)


def for_hosts(object_store: str, *, has_minio: bool, hosts: int) -> Tools:
    """Find the MinIO of this machine for hosts that have none.

    Args:
        object_store: the setting objectStore.
        has_minio: whether the head's host has one of its own.
        hosts: how many there are.

    Raises:
        pulumi.RunError: minio is asked for or needed, and cannot be had.
    """
    theirs = has_minio and object_store != "directory"
    found = Tools(paths={"minio": "minio"} if theirs else _minio(object_store))
    if hosts > 1 and not found.minio:
        raise pulumi.RunError(
            f"{hosts} hosts need an object store, for a folder of one is none of the others: "
            f"on this machine, {HAVE_MINIO}"
        )
    return found


def _minio(object_store: str) -> dict[str, pulumi.Input[str]]:
    paths: dict[str, pulumi.Input[str]] = {}
    if object_store != "directory":
        source = local.minio_source()
        if source == "go":
            paths["minio"] = GoTool(
                "minio",
                {
                    "module": versions.MINIO_MODULE,
                    "version": versions.MINIO,
                    "path": str(local.cached_minio()),
                },
            ).path
        elif source is not None:
            paths["minio"] = source
        elif object_store == "minio":
            raise pulumi.RunError(
                f"objectStore = 'minio', and neither minio nor Go {GO} or later is on PATH: "
                f"{HAVE_MINIO}; or set objectStore to auto or directory"
            )
        else:
            pulumi.log.info(
                f"No object store: results go to a folder of this machine. To have MinIO, "
                f"{HAVE_MINIO}"
            )
    return paths
