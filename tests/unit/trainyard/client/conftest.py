"""Outputs of a stack that does not exist, for tests that only read them."""

import json

import pytest

from tests.outputs import of_stack
from trainyard.client import outputs


@pytest.fixture
def values(tmp_path):
    """The JSON object of a stack with a head without CPUs and two workers, one with a GPU."""
    node = {"gpus": 0, "memoryMib": 1024, "objectStoreMib": 256, "resources": {}}
    return of_stack("http://127.0.0.1:1/", tmp_path / "storage") | {
        "accessKey": "canary-access-0123456789",
        "secretKey": "canary-secret-0123456789",
        "nodes": [
            {"name": "head", "cpus": 0} | node,
            {"name": "worker-0", "cpus": 2} | node,
            {"name": "worker-1", "cpus": 4} | node | {"gpus": 1, "resources": {"TPU": 4}},
        ],
    }


@pytest.fixture
def stack(values):
    """The same, as the client holds it."""
    return outputs.parse(json.dumps(values), None, "test")


@pytest.fixture
def outputs_file(tmp_path):
    """Writes text or an object into a private file."""

    def write(content, mode=0o600):
        path = tmp_path / "outputs.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        path.chmod(mode)
        return path

    return write
