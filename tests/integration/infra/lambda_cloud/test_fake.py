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
    InsufficientCapacityError,
    InUseError,
    LambdaError,
    LostReplyError,
    NotFoundError,
    RateLimitedError,
    ServerError,
)
from infra.hosts.lambda_cloud.model import FirewallRule
from infra.hosts.lambda_cloud.pacing import Pace, PacedClient
from tests.fakes.lambda_cloud import FakeCloud
from tests.waiting import wait_for

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


def test_an_instance_from_launch_to_gone(cloud, client, request_):
    cloud.account.boot_seconds = cloud.account.terminate_seconds = 0.5
    id_ = client.launch(request_)
    booting = client.instance(id_)
    assert (booting.status, booting.ip, booting.private_ip) == ("booting", None, None)
    assert booting.tags == TAGS
    assert (booting.name, cloud.account.instances[id_].hostname) == ("node-0", "node-0")
    assert (booting.region, booting.instance_type) == ("us-east-1", "gpu_1x_a10")
    assert booting.price_cents_per_hour == 75
    assert cloud.account.instances[id_].user_data == request_["user_data"]

    wait_for("the boot", lambda: client.instance(id_).status == "active")
    active = client.instance(id_)
    assert active.ip.startswith("127.66.")
    assert active.private_ip != active.ip
    assert client.instances() == [active]
    client.rename(id_, "other")
    assert client.instance(id_).name == "other"

    client.terminate(id_)
    assert client.instance(id_).status == "terminating"
    wait_for("the end", lambda: client.instances() == [])
    for call in (
        lambda: client.instance(id_),
        lambda: client.terminate(id_),
        lambda: client.rename(id_, "n"),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_ssh_keys_are_taken_and_deleted(client):
    given = client.add_ssh_key("given", PUBLIC)
    assert client.ssh_keys() == [given]
    with pytest.raises(LambdaError, match=INVALID):
        client.add_ssh_key("given", PUBLIC)
    with pytest.raises(LambdaError, match=INVALID):
        client.add_ssh_key("broken", "ssh-ed25519 nothing")
    client.delete_ssh_key(given.id)
    assert client.ssh_keys() == []
    with pytest.raises(LambdaError, match=INVALID):
        client.delete_ssh_key(given.id)


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


def test_capacity_is_used_up_and_comes_back(cloud, client, request_):  # F3
    cloud.account.capacity["gpu_1x_a10"] = {"us-east-1": 1}
    offer = client.instance_types()["gpu_1x_a10"]
    assert (offer.price, offer.gpus, offer.vcpus, offer.regions) == (0.75, 1, 30, ["us-east-1"])
    id_ = client.launch(request_)
    assert client.instance_types()["gpu_1x_a10"].regions == []
    with pytest.raises(InsufficientCapacityError, match="Not enough capacity"):
        client.launch(request_)
    client.terminate(id_)
    wait_for("room", lambda: client.instance_types()["gpu_1x_a10"].regions == ["us-east-1"])


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


def test_who_is_too_fast_is_told_how_long_to_wait():  # F4
    with FakeCloud(pace=0.2) as cloud:
        client = Client(cloud.api_key, cloud.url)
        client.ssh_keys()
        with pytest.raises(RateLimitedError) as caught:
            client.ssh_keys()
        assert 0 < caught.value.retry_after <= 0.2
        # As another user of the account, whose requests this process does not know.
        assert paced(cloud, 0.2).ssh_keys() == []
        assert "global/rate-limited" in [entry.code for entry in cloud.journal.of("ssh_keys")]


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


def test_reads_outlast_faults(cloud):  # F6
    cloud.faults.respond("instances", 502)
    cloud.faults.drop("instances", commit=False)
    assert paced(cloud, 0.001).instances() == []
    assert len(cloud.journal.of("instances")) == 3


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
