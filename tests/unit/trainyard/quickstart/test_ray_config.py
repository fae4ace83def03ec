"""ray_config.yaml: its valid content, and one message for all of its faults."""

from pathlib import Path

import pytest
import yaml

from trainyard.client.errors import ClientError
from trainyard.quickstart import ray_config

SEED = """\
driver:
  user: 'ann' # Your username on your local computer
  private_key_file: '~/.ssh/id_rsa_ubuntu'
ray_head:
  hostname_or_ip_address: '192.168.2.4'
  client_server_port: 10001
worker:
  user: 'ann'
  hostname_or_ip_address: '192.168.2.4'
  ssh_port: 22
  platform: 'linux'
  base_dir: '~/git/ray-quickstart'
  setup_commands:
    - source ~/anaconda3/etc/profile.d/conda.sh
    - conda activate ray-quickstart
    - pipenv install --skip-lock
"""
LEAST = {
    "ray_head": {"hostname_or_ip_address": "gpu"},
    "worker": {"user": "ann", "hostname_or_ip_address": "gpu", "base_dir": "~/x"},
}


def _read(folder: Path, text: str) -> ray_config.RayConfig:
    path = folder / "ray_config.yaml"
    path.write_text(text)
    return ray_config.read_ray_config(path)


def test_the_file_of_the_seed_is_read(tmp_path):  # C10, C11
    found = _read(tmp_path, SEED)
    assert found.local_user == "ann"
    assert found.key_file == Path.home() / ".ssh/id_rsa_ubuntu"
    assert (found.head, found.client_port) == ("192.168.2.4", 10001)
    assert (found.user, found.host, found.ssh_port) == ("ann", "192.168.2.4", 22)
    assert found.base_dir == "~/git/ray-quickstart"
    assert found.setup_commands[1:] == (
        "conda activate ray-quickstart",
        "pipenv install --skip-lock",
    )


def test_what_is_left_out_has_a_default(tmp_path):
    found = _read(tmp_path, yaml.safe_dump(LEAST))
    assert (found.local_user, found.key_file) == ("", None)
    assert (found.client_port, found.ssh_port) == (10001, 22)
    assert (found.setup_commands, found.host_key) == ((), "")


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("worker", "user", None, r"worker\.user is missing: set it to a user name"),
        ("worker", "base_dir", None, r"worker\.base_dir is missing"),
        ("ray_head", "hostname_or_ip_address", None, r"ray_head\.hostname.* is missing"),
        ("worker", "ssh_port", 70000, "worker.ssh_port is 70000, not a port from 1 to 65535"),
        ("worker", "ssh_port", True, "worker.ssh_port is True, not a port"),
        ("ray_head", "client_server_port", "10001", "is '10001', not a port"),
        ("worker", "hostname_or_ip_address", "a; rm -rf /", "not a host name or address"),
        ("worker", "user", "-oProxyCommand=x", "not a user name"),
        ("worker", "base_dir", "relative", "is 'relative', not a path with ~ or / in front"),
        ("worker", "platform", "windows", "only 'linux' works: use WSL 2"),
        ("worker", "setup_commands", "pip install x", "not a list of commands"),
        ("worker", "host_key", "AAAA", "not `ssh-ed25519 AAAA"),
        ("worker", "sshport", 22, "worker.sshport is unknown: did you mean ssh_port"),
        ("driver", "user", ["ann"], r"driver.user is \['ann'\], not a user name"),
        ("driver", "private_key_file", 7, "driver.private_key_file is 7, not text"),
    ],
)
def test_a_fault_names_key_value_and_bound(tmp_path, section, key, value, message):  # C11
    values = {name: dict(fields) for name, fields in LEAST.items()}
    changed = values.setdefault(section, {})
    changed.pop(key, None)
    if value is not None:
        changed[key] = value
    with pytest.raises(ClientError, match=message):
        _read(tmp_path, yaml.safe_dump(values))


def test_all_faults_are_told_at_once(tmp_path):
    with pytest.raises(ClientError) as caught:
        _read(tmp_path, "worker: {user: ann}\nhead: {}\n")
    for part in ("head is unknown: did you mean ray_head?", "worker.base_dir", "ray_head.hostname"):
        assert part in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1]", "worker: 7", "a: [", "x"])
def test_what_is_no_mapping_is_one_message(tmp_path, text):
    with pytest.raises(ClientError) as caught:
        _read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ClientError, match=r"cannot read .*train init. writes one"):
        ray_config.read_ray_config(tmp_path / "nowhere.yaml")
