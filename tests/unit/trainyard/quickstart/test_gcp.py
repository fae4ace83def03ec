"""The cluster file for Google Cloud: Ray's own schema and loader take it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private import util

from tests import ran
from trainyard.quickstart import gcp

GIVEN = {"--project": "my-project-1", "--cidr": "192.0.2.0/24"}


@pytest.fixture
def write(tmp_path, monkeypatch, train) -> Callable[..., int]:
    """Writes the file by the command; returns the exit status."""

    def written(**changed: str) -> Any:
        given = GIVEN | {f"--{key}": value for key, value in changed.items()}
        words = [word for pair in given.items() for word in pair]
        return train("cluster-file", "--provider", "gcp", "-o", "c.yaml", *words)

    monkeypatch.chdir(tmp_path)
    return written


def test_rays_schema_and_loader_take_the_file(write, tmp_path, monkeypatch, train):  # B1 B2 B26 B29
    # One that PyTorch/XLA has packages for, so that a host of TPUs starts.
    monkeypatch.setattr(gcp, "PYTHON", "3.12")
    assert write() == 0
    assert "has no end and no budget: it costs money until `ray down -y c.y" in train.out
    assert "no end and no budget" in (tmp_path / "c.yaml").read_text().partition("\n")[0]
    page = (Path(__file__).parents[4] / "docs/gcp.md").read_text().splitlines()
    assert "without an end and without a check of a budget" in page[1]
    config: dict[str, Any] = util.prepare_config(yaml.safe_load((tmp_path / "c.yaml").read_text()))
    util.validate_config(config)
    assert config["provider"]["region"] == "us-central1"
    groups = config["available_node_types"]
    assert groups["head"]["resources"]["CPU"] == 0
    assert {name: (g["min_workers"], g["max_workers"]) for name, g in groups.items()} == {
        "head": (0, 0),
        "cpu": (0, 4),
        "gpu": (0, 2),
        "tpu": (0, 1),
    }
    assert groups["cpu"]["node_config"]["scheduling"]["preemptible"]
    assert groups["gpu"]["resources"]["GPU"] == 1
    assert groups["tpu"]["resources"]["TPU"] == 4
    assert config["idle_timeout_minutes"] == 5
    # All are in the network that the script makes, which Google's default is not.
    where = "projects/my-project-1/regions/us-central1/subnetworks/trainyard"
    for name in ("head", "cpu", "gpu"):
        interface = groups[name]["node_config"]["networkInterfaces"][0]
        assert interface["subnetwork"] == where
        [disk] = groups[name]["node_config"]["disks"]
        assert disk["initializeParams"]["diskSizeGb"] == 150
    assert groups["tpu"]["node_config"]["networkConfig"]["subnetwork"] == where
    # The locks that the commands install are where the file says, or `ray up` cannot copy them.
    folder = Path(config["file_mounts"]["~/trainyard/requirements"])
    for name, lock, has in (  # B24: PyTorch's packages for NVIDIA's GPUs run on CPUs too
        ("cpu", "host.txt", {"torch", "nvidia-cudnn-cu13"}),
        ("gpu", "host.txt", {"torch", "nvidia-cudnn-cu13"}),
        ("tpu", "tpu.txt", {"torch", "torch-xla", "libtpu"}),
    ):
        commands = groups[name].get("worker_setup_commands") or config["setup_commands"]
        setup, packages = [w for c in commands for w in c.split() if w.endswith(".txt")]
        assert (folder / Path(setup).name).is_file()
        assert Path(packages).name == lock
        pinned = re.findall(r"^([\w-]+)==", (folder / lock).read_text(), re.MULTILINE)
        assert has <= {*pinned}, name
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]


def test_a_python_without_packages_for_tpus_starts_no_tpu_host(  # B24
    write, tmp_path, monkeypatch, train
):
    monkeypatch.setattr(gcp, "PYTHON", "3.13")
    assert write() == 0
    config = yaml.safe_load((tmp_path / "c.yaml").read_text())
    assert config["available_node_types"]["tpu"]["max_workers"] == 0
    assert "no packages for Python 3.13: for TPUs make .venv" in train.out + train.err


GCLOUD = """#!/bin/sh
echo "$@" >>"$0.log"
case "$*" in *"instances list"*) echo "$RUNNING" ;; esac
"""


def test_the_script_makes_and_removes_a_network_for_one_range(write, tmp_path):  # B2
    assert write() == 0
    program = tmp_path / "gcloud"
    program.write_text(GCLOUD)
    program.chmod(0o755)

    def run(word: str, running: str = "") -> tuple[int, str, str]:
        log = tmp_path / "gcloud.log"
        log.unlink(missing_ok=True)
        done = ran.run(
            [tmp_path / "c_network.sh", word],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "RUNNING": running},
        )
        return done.returncode, done.stderr, log.read_text() if log.exists() else ""

    code, _, called = run("up")
    assert code == 0
    # A rule without a range, or one more, would let everybody in.
    rules = [line.split(" --allow ")[1] for line in called.splitlines() if "firewall" in line]
    assert rules == [
        "tcp,udp,icmp --source-ranges 10.90.0.0/20",
        "tcp:22 --source-ranges 192.0.2.0/24",
    ]
    made = {line.split(" create ")[1].split()[0] for line in called.splitlines()}
    code, said, called = run("down", running="ray-trainyard-head-1")
    assert code == 1
    assert "ray-trainyard-head-1" in said
    assert " delete " not in called  # a network in use is left as it is
    code, _, called = run("down")
    assert code == 0
    assert made == {
        name
        for line in called.splitlines()
        if " delete " in line
        for name in line.split(" delete ")[1].split(" --")[0].split()
    }
    assert run("sideways")[0] == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"provider": "aws"}, "'aws' is not known: give gcp"),
        ({"project": ""}, "--project must be the id of a project, and is ''"),
        ({"zone": "us-central1"}, "give one such as us-central1-a"),
        ({"name": "A cluster"}, "--name must be"),
        ({"cidr": ""}, "--cidr must be a range"),
        ({"cidr": "192.0.2.1/24"}, "has host bits set"),
        ({"cidr": "0.0.0.0/0"}, "the whole internet"),
        ({"output": "none/c.yaml"}, "cannot write none/c.yaml"),
    ],
)
def test_what_cannot_be_is_one_message(changed, said, write, tmp_path, train):
    assert write(**changed) == 1
    assert said in train.err
    assert train.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
