"""Pulumi's own host of Python providers, which hears a Cancel because of infra/cancellation.py."""

import os
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from infra.hosts.lambda_cloud.providers import ActiveProvider
from tests.fakes.lambda_cloud import Boot

pytestmark = pytest.mark.integration


@pytest.fixture
def host(rented):
    """A channel to the host's process."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "pulumi.dynamic"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PULUMI_PROJECT": "rented"},
    )
    try:
        port = process.stdout.readline().strip()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield provider_pb2_grpc.ResourceProviderStub(channel)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _struct(values):
    struct = struct_pb2.Struct()
    struct.update(values)
    return struct


def test_the_host_ends_a_wait_when_it_is_canceled(rented, cloud, host):  # F11
    id_ = cloud.account.add_instance("slow", status="booting", due=time.time() + 600).id
    host.Configure(provider_pb2.ConfigureRequest(args=_struct({})))
    props = {
        "__provider": serialize_provider(ActiveProvider()),
        "instanceIds": [id_],
        "timeoutMinutes": 30,
    }
    ended = []

    def create():
        try:
            host.Create(provider_pb2.CreateRequest(properties=_struct(props)), timeout=60)
        except grpc.RpcError as error:
            ended.append(error.details())

    thread = threading.Thread(target=create)
    cloud.journal.clear()
    thread.start()
    rented.wait_for(lambda: len(cloud.journal.of("instances")) >= 3)
    begun = time.monotonic()
    host.Cancel(empty_pb2.Empty())
    thread.join()
    assert time.monotonic() - begun < 5
    assert "CanceledError: canceled; what was made is in the state" in ended[0]


@pytest.mark.pulumi
@pytest.mark.timeout(240)
def test_one_ctrl_c_ends_an_up_of_the_cli(rented, cloud, pulumi_cli, tmp_path):  # F11
    environment = os.environ | {"PULUMI_PYTHON_CMD": sys.executable}
    (tmp_path / "backend").mkdir()
    pulumi_cli(rented.project, environment, "dev", "stack init")
    pulumi_cli(rented.project, environment, "dev", "up", "--yes")
    pulumi_cli(rented.project, environment, "dev", "preview", "--expect-no-changes")
    rented.done("preview", "--refresh", "--expect-no-changes")
    cloud.account.boots = [Boot(outcome="stuck")]
    rented.declare(count=3)
    cloud.journal.clear()
    process = subprocess.Popen(
        ["pulumi", "up", "--yes", "--skip-preview", "-s", "dev", "--non-interactive"],
        cwd=rented.project,
        env=environment | {"PULUMI_SKIP_UPDATE_CHECK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        rented.wait_for(
            lambda: [entry.operation for entry in cloud.journal.entries][-3:] == ["instances"] * 3
        )
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    finally:
        rented.kill(process)
        process.stdout.close()
    assert process.returncode != 0
    assert time.monotonic() - begun < 10
    assert "canceled; what was made is in the state" in text
    assert rented.live() == rented.recorded()
    pulumi_cli(rented.project, environment, "dev", "destroy", "--yes")
    assert rented.live() == set()
