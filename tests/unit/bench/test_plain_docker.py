"""The plain way of a benchmark starts what the stack starts, or says that it cannot."""

import importlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CONTAINER: dict[str, Any] = {
    "name": "lab-minio",
    "image": "sha256:0",
    "command": ["server", "/data"],
    "envs": ["A=1", "B=two words"],
    "labels": [{"label": "stack", "value": "lab"}],
    "ports": [{"ip": "127.0.0.1", "external": 9000, "internal": 9001, "protocol": "tcp"}],
    "volumes": [
        {"volumeName": "data", "containerPath": "/data", "readOnly": False},
        {"hostPath": "/etc/hosts", "containerPath": "/hosts", "readOnly": True},
    ],
    "networksAdvanced": [{"name": "net", "aliases": ["minio"]}],
    "healthcheck": {
        "tests": ["CMD", "curl", "http://127.0.0.1:9001/a b"],
        "interval": "10s",
        "timeout": "5s",
        "startPeriod": "1m0s",
        "startInterval": "0s",
        "retries": 3,
    },
    "init": True,
    "restart": "unless-stopped",
    "shmSize": 64,
    "stopTimeout": 20,
    "capabilities": {"drops": ["ALL"]},
    "securityOpts": ["no-new-privileges:true"],
    "logDriver": "json-file",
    "logOpts": {"max-size": "10m"},
    "devices": [{"hostPath": "/dev/kfd"}],
    "groupAdds": ["video"],
    "destroyGraceSeconds": 20,
    "mustRun": True,
}
OPTIONS = [
    "--name=lab-minio",
    "--env=A=1",
    "--env=B=two words",
    "--label=stack=lab",
    "--publish=127.0.0.1:9000:9001/tcp",
    "--volume=data:/data:rw",
    "--volume=/etc/hosts:/hosts:ro",
    "--network=net",
    "--network-alias=minio",
    "--health-cmd=curl 'http://127.0.0.1:9001/a b'",
    "--health-interval=10s",
    "--health-timeout=5s",
    "--health-start-period=1m0s",
    "--health-retries=3",
    "--init",
    "--restart=unless-stopped",
    "--shm-size=64m",
    "--stop-timeout=20",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges:true",
    "--log-driver=json-file",
    "--log-opt=max-size=10m",
    "--device=/dev/kfd",
    "--group-add=video",
]


@pytest.fixture(scope="module")
def plain() -> Iterator[ModuleType]:
    """The module; `bench` is used from the checkout only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module("bench.plain_docker")


def test_every_property_of_a_container_becomes_an_option(plain: ModuleType) -> None:
    assert plain.options(CONTAINER) == OPTIONS


def test_a_property_without_an_option_is_refused(plain: ModuleType) -> None:
    with pytest.raises(
        plain.FailedError, match="lab-minio: bench does not know the property cpuSet"
    ):
        plain.options({**CONTAINER, "cpuSet": "0"})


def test_files_of_a_container_keep_content_and_mode(plain: ModuleType) -> None:
    uploads = [{"file": "/etc/trainyard/token", "content": "naïve", "permissions": "0444"}]
    with tarfile.open(fileobj=io.BytesIO(plain.archive(uploads))) as tar:
        [file] = tar.getmembers()
        content = tar.extractfile(file)
        assert content is not None
        assert (file.name, file.mode) == ("etc/trainyard/token", 0o444)
        assert content.read().decode() == "naïve"
