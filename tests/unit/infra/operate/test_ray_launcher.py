"""Cluster files for Ray's own launcher; the whole program is in test_target.py."""

import json

import pulumi
import pytest
import yaml

from infra.operate import ray_launcher
from infra.operate.ray_launcher import cluster_file
from tests import ran

STARTS = [
    "ulimit -n $(ulimit -Hn); A=b /srv/ada/env/bin/ray start --head",
    "ulimit -n $(ulimit -Hn); A=b /srv/ada/env/bin/ray start --address=10.0.0.4:6379",
]


@pytest.fixture(autouse=True)
def stack(monkeypatch):
    monkeypatch.setattr(pulumi, "get_project", lambda: "trainyard")
    monkeypatch.setattr(pulumi, "get_stack", lambda: "test")


def _file(**changes):
    values = {
        "key_file": "~/.ssh/test-ssh-010.pem",
        "addresses": ["10.0.0.4", "10.0.0.5", "10.0.0.6"],
        "starts": STARTS,
        "host": "192.0.2.4",
        "user": "ada",
    }
    return cluster_file(**values | changes)


def test_all_machines_and_the_key_are_in_it():  # A22 A24
    found = yaml.safe_load(_file())
    assert found == {
        "cluster_name": "trainyard-test",
        "provider": {
            "type": "local",
            "head_ip": "192.0.2.4",
            "worker_ips": ["10.0.0.5", "10.0.0.6"],
        },
        "auth": {"ssh_user": "ada", "ssh_private_key": "~/.ssh/test-ssh-010.pem"},
        "max_workers": 2,
        "min_workers": 2,
        "head_start_ray_commands": ["/srv/ada/env/bin/ray stop", STARTS[0]],
        "worker_start_ray_commands": ["/srv/ada/env/bin/ray stop", STARTS[1]],
    }


def test_a_single_machine_has_no_worker_and_an_agent_no_key():
    found = yaml.safe_load(_file(addresses=["10.0.0.4"], starts=STARTS[:1], key_file=""))
    assert found["auth"] == {"ssh_user": "ada"}
    assert found["provider"]["worker_ips"] == []
    assert found["worker_start_ray_commands"] == ["/srv/ada/env/bin/ray stop"]


def test_ray_takes_the_file():  # A24
    util = pytest.importorskip("ray.autoscaler._private.util")
    prepared = util.prepare_config(yaml.safe_load(_file()))
    util.validate_config(prepared)
    assert prepared["provider"]["type"] == "local"
    (node_type,) = prepared["available_node_types"].values()
    assert (node_type["min_workers"], node_type["max_workers"]) == (2, 2)


def test_a_start_command_is_safe_for_the_shell():  # F39
    command = ray_launcher._command(
        "printf",
        {"ODD": "a b'$(touch canary)"},
        ["%s\n", '--resources={"a b": 1}', "--temp-dir=/tmp/$(touch canary)"],
        more='"$HOME/x"',
    )
    said = ran.output(["/bin/sh", "-c", command], env={"HOME": "/h"})
    flag, folder, more = said.splitlines()
    assert json.loads(flag.partition("=")[2]) == {"a b": 1}
    assert folder == "--temp-dir=/tmp/$(touch canary)"
    assert more == "/h/x"


def test_a_job_finds_the_python_of_ray(tmp_path, put_program):  # A30
    python = put_program(tmp_path, "python", "exit 1")
    ray = put_program(tmp_path, "ray", "command -v python")
    command = ray_launcher._command(str(ray), {}, ["start"], more="")
    assert ran.output(["/bin/sh", "-c", command]) == f"{python}\n"
