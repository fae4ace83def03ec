"""The client and the fake cloud over real HTTP, and the fake's own promises."""

import itertools
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from infra.hosts import keys
from infra.hosts.lambda_cloud import errors
from infra.hosts.lambda_cloud.client import Client
from infra.hosts.lambda_cloud.errors import (
    InUseError,
    LambdaError,
    LostReplyError,
    NotFoundError,
    ServerError,
)
from infra.hosts.lambda_cloud.model import FirewallRule
from infra.hosts.lambda_cloud.pacing import Pace, PacedClient
from tests.fakes.lambda_cloud import FakeCloud

pytestmark = pytest.mark.integration

RULES = [
    FirewallRule(
        protocol="tcp", source_network="198.51.100.0/24", description="SSH", port_range=(22, 22)
    ),
    FirewallRule(protocol="icmp", source_network="0.0.0.0/0", description="ping"),
]
INVALID, MISSING = "global/invalid-parameters", "global/object-does-not-exist"
PUBLIC = keys.generate().public
TAGS = {"trainyard:node": "0", "trainyard:id": "abc"}
LAUNCH = {
    "region_name": "us-east-1",
    "instance_type_name": "gpu_1x_a10",
    "ssh_key_names": ["key"],
    "name": "node-0",
    "hostname": "node-0",
    "user_data": "#cloud-config\n",
    "tags": [{"key": key, "value": value} for key, value in TAGS.items()],
}


@pytest.fixture
def client(cloud):
    return Client(cloud.api_key, cloud.url)


@pytest.fixture
def request_(client):
    """A launch that the account takes."""
    client.add_ssh_key("key", PUBLIC)
    return LAUNCH


def paced(cloud, scale):
    return PacedClient(cloud.api_key, cloud.url, sleep=time.sleep, pace=Pace(scale=scale))


# The client, endpoint by endpoint.


def test_file_systems_are_of_a_region_and_not_deleted_in_use(client, request_):
    made = client.create_file_system("data", "us-east-1")
    assert (made.region, made.mount_point) == ("us-east-1", "/lambda/nfs/data")
    with pytest.raises(LambdaError, match="global/duplicate"):
        client.create_file_system("data", "us-west-1")
    mounts = [{"mount_point": made.mount_point, "file_system_id": made.id}]
    mounting = request_ | {"file_system_mounts": mounts}
    with pytest.raises(LambdaError, match="wrong-region"):
        client.launch(mounting | {"region_name": "us-west-1"})
    id_ = client.launch(mounting)
    with pytest.raises(InUseError):
        client.delete_file_system(made.id)
    client.terminate(id_)
    client.delete_file_system(made.id)
    assert client.file_systems() == []
    with pytest.raises(NotFoundError):
        client.delete_file_system(made.id)


def test_firewall_rulesets_are_of_a_region_and_not_deleted_in_use(client, request_):
    made = client.create_firewall_ruleset("ours", "us-east-1", RULES)
    assert (made.name, made.region, made.rules) == ("ours", "us-east-1", RULES)
    guarded = request_ | {"firewall_rulesets": [{"id": made.id}]}
    with pytest.raises(LambdaError, match=INVALID):
        client.launch(guarded | {"region_name": "us-west-1"})
    id_ = client.launch(guarded)
    client.update_firewall_ruleset(made.id, RULES[:1], "renamed")
    (changed,) = client.firewall_rulesets()
    assert (changed.name, changed.rules) == ("renamed", RULES[:1])
    with pytest.raises(InUseError, match="Terminate all instances"):
        client.delete_firewall_ruleset(made.id)
    client.terminate(id_)
    client.delete_firewall_ruleset(made.id)
    assert client.firewall_rulesets() == []
    with pytest.raises(NotFoundError):
        client.delete_firewall_ruleset(made.id)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"region_name": "us-nowhere-1"}, INVALID),
        ({"instance_type_name": "gpu_9x"}, MISSING),
        ({"ssh_key_names": ["other"]}, MISSING),
        ({"hostname": "Not_A_Host"}, INVALID),
        ({"name": "n" * 65}, INVALID),
        ({"tags": [{"key": "UPPER", "value": "x"}]}, INVALID),
        ({"tags": [{"key": "a:b", "value": "x" * 129}]}, INVALID),
        ({"user_data": "x" * 1_000_001}, INVALID),
        ({"firewall_rulesets": [{"id": "other"}]}, MISSING),
        ({"file_system_mounts": [{"mount_point": "/data", "file_system_id": "other"}]}, MISSING),
        ({"file_system_mounts": [{"mount_point": "/etc", "file_system_id": "other"}]}, INVALID),
        ({"region_name": "us-west-3"}, errors.CAPACITY),
    ],
)
def test_what_cannot_be_launched_is_refused(cloud, client, request_, changes, code):  # F3, F39
    with pytest.raises(LambdaError) as caught:
        client.launch(request_ | changes)
    assert caught.value.code == code
    assert cloud.account.instances == {}


# The pace.


def test_the_account_keeps_its_bounds_and_the_process_keeps_within_them():  # F4
    scale = 0.1
    with FakeCloud(pace=scale) as cloud:
        account = paced(cloud, scale)
        account.add_ssh_key("key", PUBLIC)
        with ThreadPoolExecutor(4) as threads:
            launches = [threads.submit(account.launch, LAUNCH) for _ in range(3)]
            reads = [threads.submit(account.instances) for _ in range(10)]
        assert len({each.result() for each in launches}) == 3
        assert all(each.exception() is None for each in reads)
        admitted = [each.time for each in cloud.journal.of("launch") if each.status == 200]
        assert min(b - a for a, b in itertools.pairwise(admitted)) >= 12 * scale * 0.9
        assert cloud.journal.problems == []


# Faults.


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("fault", ["drop", "delay"])
def test_a_reply_that_is_lost_may_have_left_an_instance(cloud, request_, fault, commit):  # F5
    if fault == "drop":
        cloud.faults.drop("launch", commit=commit)
    else:
        cloud.faults.delay("launch", 60, commit=commit)
    client = Client(cloud.api_key, cloud.url, timeout=1.0)
    with pytest.raises(LostReplyError):
        client.launch(request_)
    found = [each for each in client.instances() if each.tags == TAGS]
    assert len(found) == len(cloud.account.instances) == commit
    assert len(cloud.journal.of("launch")) == 1


# The fake itself.


def test_an_answer_that_the_document_does_not_have_is_caught():
    with FakeCloud() as cloud:
        cloud.account.types["gpu_1x_a10"]["specs"]["gpus"] = "one"
        with pytest.raises(ServerError, match="not as in the document"):
            Client(cloud.api_key, cloud.url).instance_types()
        (problem,) = cloud.journal.problems
        assert "'one' is not of type 'integer'" in problem


def test_a_request_that_the_document_does_not_have_is_refused(cloud):
    headers = {"Authorization": f"Bearer {cloud.api_key}"}
    with httpx.Client(base_url=cloud.url, headers=headers, trust_env=False) as http:
        launch = http.post("/api/v1/instance-operations/launch", json={"region_name": "us-east-1"})
        terminate = http.post("/api/v1/instance-operations/terminate", content=b"{")
        nothing = http.get("/api/v1/instance-operations")
    assert (launch.status_code, terminate.status_code, nothing.status_code) == (400, 400, 404)
    assert "instance_type_name" in launch.json()["error"]["message"]


def test_nothing_is_left_of_a_cloud_that_stopped():
    with FakeCloud() as cloud:
        cloud.faults.delay("instances", 600, commit=False)
        port = int(cloud.url.rpartition(":")[2])
        with pytest.raises(LostReplyError):
            Client(cloud.api_key, cloud.url, timeout=0.2).instances()
        started = time.monotonic()
    assert time.monotonic() - started < 30  # not 600
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
