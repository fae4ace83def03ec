"""A stack of containers on one rented machine: its Engine runs them, and its end is theirs."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.machines import docker_engine
from tests import ran
from tests.fakes.lambda_cloud import FakeCloud
from tests.fakes.machines import Machines, images
from tests.integration.training import tiny

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[4]
BUILT = ("jupyter", "ray")  # there, from what is linked
NAMED = ("grafana", "prometheus", "versitygw")
SERVICES = {"grafana", "jupyter", "prometheus", "ray-head", "ray-worker-0", "versitygw"}


class _WithEngine:
    """Machines as Lambda's: with a Docker Engine that `ubuntu` may use, and with the images."""

    def __init__(self, guests: Machines) -> None:
        self.guests = guests
        self.destroy = guests.destroy

    def boot(self, instance_id: str, *about: str) -> tuple[str, str]:
        addresses = self.guests.boot(instance_id, *about, docker=True)
        self.guests.wait(instance_id)
        images.give(self.guests, instance_id, *BUILT, *NAMED)
        self.guests.exec(instance_id, "usermod -aG docker ubuntu")
        return addresses


@pytest.fixture
def rented(guests, declare) -> Iterator[tuple[Any, FakeCloud]]:
    if not docker_engine.answers():
        pytest.skip("no Docker Engine answers, which makes the images")
    images.build(*BUILT, *NAMED)
    base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
    with FakeCloud(machines=_WithEngine(guests)) as cloud:
        stack = declare(
            base,
            copied=True,
            runtime="docker",
            notebook=True,
            sshKeyFile=str(base / "keys" / "key.pem"),
            allowedCidrs=["192.0.2.0/24"],
            lambdaCloud={"candidates": [{"type": "gpu_1x_a10"}], "ttlHours": 8},
            images={program: images.name(program) for program in NAMED},
            buildArgs={"BASE_IMAGE": images.name("base")},
            worker={"cpus": 2},
        )
        stack.environment.pop("SSH_AUTH_SOCK", None)
        stack.environment.update(cloud.environment() | {"TRAINYARD_LAMBDA_PACE": "0.05"})
        try:
            yield stack, cloud
            assert cloud.journal.problems == []
            assert cloud.account.machine_errors == []
        finally:
            for each in list(cloud.account.instances):
                guests.destroy(each)
            shutil.rmtree(base, ignore_errors=True)


def test_a_rented_machine_runs_containers_and_nothing_is_left(rented, guests, tmp_path):  # A27
    stack, cloud = rented
    stack.engine("up", "--yes")
    (instance,) = cloud.account.instances.values()
    listed = guests.exec(instance.id, "docker ps --format '{{.Names}}'").stdout
    assert {*listed.split()} == SERVICES
    said = ran.output(
        [
            *(sys.executable, "-m", "trainyard.client", "submit", tiny.__file__, "--name", "there"),
            *("--outputs", stack.write_outputs(tmp_path), "--working-dir", ROOT),
            *("--", "--epochs", "1"),
        ],
        env=stack.environment,
        timeout=300,
    )
    assert "Training completed after 1 epochs" in said
    stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    # As an operating system's update of a machine in use: the Engine and its containers come back.
    guests.exec(instance.id, "docker stop --time 0 prometheus")
    assert stack.drift().returncode == 2
    stack.engine("up", "--yes", "--refresh")
    stack.engine("destroy", "--yes")
    assert not cloud.account.instances
    assert not cloud.account.ssh_keys
    assert not cloud.account.rulesets
