"""The plain way of a benchmark starts what the stack starts, or says that it cannot."""

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bench import plain_compose, plain_docker
from bench.measure import FailedError

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


def test_a_property_without_an_option_is_refused():
    with pytest.raises(FailedError, match="lab-minio: bench does not know the property cpuSet"):
        plain_docker.options({**CONTAINER, "cpuSet": "0"})


def test_files_of_a_container_keep_content_and_mode():
    uploads = [{"file": "/etc/trainyard/token", "content": "naïve", "permissions": "0444"}]
    with tarfile.open(fileobj=io.BytesIO(plain_docker.archive(uploads))) as tar:
        [file] = tar.getmembers()
        content = tar.extractfile(file)
        assert content is not None
        assert (file.name, file.mode) == ("etc/trainyard/token", 0o444)
        assert content.read().decode() == "naïve"


def _declared(container: dict[str, Any]) -> plain_docker.Declared:
    network = {"name": "net", "labels": [{"label": "stack", "value": "lab"}]}
    return plain_docker.Declared([network], [{"name": "data", "labels": []}], [(container, {})])


def test_docker_compose_gets_bounds_and_files(tmp_path):
    upload = {"file": "/etc/token", "content": "naïve", "permissions": "0444"}
    more = {"envs": ["A=$HOME"], "memory": 512, "memorySwap": -1, "uploads": [upload]}
    document = plain_compose.document(_declared({**CONTAINER, **more}), tmp_path)
    service = document["services"]["lab-minio"]
    assert service["environment"] == ["A=$$HOME"]
    assert (service["mem_limit"], service["memswap_limit"]) == ("512m", -1)
    source, _, target = service["volumes"][-1].partition(":")
    assert target == "/etc/token:ro"
    assert (Path(source).read_text(), Path(source).stat().st_mode & 0o777) == ("naïve", 0o444)


def test_docker_compose_is_not_given_a_container_that_it_would_change(tmp_path):
    declared = _declared({**CONTAINER, "cpuSet": "0"})
    with pytest.raises(FailedError, match=r"does not know the properties \['cpuSet'\]"):
        plain_compose.document(declared, tmp_path)
