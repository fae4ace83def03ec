import pytest
import yaml

from client import runtimes
from client.errors import ClientError


@pytest.mark.parametrize("name", ["cpu", "gpu", "tpu"])
def test_runtime_environments_have_names(name):  # B11 B24
    assert yaml.safe_load(runtimes.find(name).read_text())["env_vars"]


def test_a_file_of_ones_own(tmp_path, monkeypatch):  # B25
    monkeypatch.chdir(tmp_path)
    assert runtimes.find("own.yaml").name == "own.yaml"


def test_a_name_that_nobody_has():
    with pytest.raises(ClientError, match="'tup': give one of cpu, gpu, tpu"):
        runtimes.find("tup")
