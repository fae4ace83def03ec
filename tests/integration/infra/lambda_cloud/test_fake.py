"""The client and the fake cloud over real HTTP, and the fake's own promises."""

import itertools
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from infra.hosts import key_pair
from infra.hosts.lambda_cloud import errors
from infra.hosts.lambda_cloud.account import open_account
from infra.hosts.lambda_cloud.client import Client
from infra.hosts.lambda_cloud.errors import (
    AccessError,
    InsufficientCapacityError,
    InUseError,
    LambdaError,
    LostReplyError,
    NotFoundError,
    RateLimitedError,
    ServerError,
    UnreachableError,
)
from infra.hosts.lambda_cloud.model import FirewallRule
from infra.hosts.lambda_cloud.pacing import Pace, PacedClient
from tests.fakes.lambda_cloud import Boot, FakeCloud, Fault, cloud_process

pytestmark = pytest.mark.integration

RULES = [
    FirewallRule(
        protocol="tcp", source_network="198.51.100.0/24", description="SSH", port_range=(22, 22)
    ),
    FirewallRule(protocol="icmp", source_network="0.0.0.0/0", description="ping"),
]
INVALID, MISSING = "global/invalid-parameters", "global/object-does-not-exist"
PUBLIC = key_pair.generate().public
TAGS = {"trainyard:node": "0", "trainyard:id": "abc"}
LAUNCH = {
    "region_name": "us-east-1",
    "instance_type_name": "gpu_1x_a10",
    "ssh_key_names": ["key"],
    "name": "node-0",
    "hostname": "node-0",
    "user_data": "#cloud-config\n# canary-data",
    "tags": [{"key": key, "value": value} for key, value in TAGS.items()],
}
DEADLINE_SECONDS = 30


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


def until(check):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := check()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)
    return found


def codes(cloud, operation):
    return [entry.code for entry in cloud.journal.of(operation)]


# The client, endpoint by endpoint.


def test_types_have_prices_specs_and_the_regions_with_capacity(cloud, client):
    offer = client.instance_types()["gpu_1x_a10"]
    assert (offer.price, offer.gpus, offer.vcpus) == (0.75, 1, 30)
    assert offer.regions == ["us-east-1", "us-west-1"]
    cloud.account.capacity["gpu_1x_a10"] = {"us-west-1": 1, "us-east-1": 0}
    assert client.instance_types()["gpu_1x_a10"].regions == ["us-west-1"]
    assert client.instance_types()["gpu_8x_h100_sxm5"].regions == []


def test_an_instance_from_launch_to_gone(cloud, client, request_):
    cloud.account.boot_seconds = cloud.account.terminate_seconds = 60
    id_ = client.launch(request_)
    booting = client.instance(id_)
    assert (booting.status, booting.ip, booting.private_ip) == ("booting", None, None)
    assert booting.tags == TAGS
    assert (booting.name, cloud.account.instances[id_].hostname) == ("node-0", "node-0")
    assert (booting.region, booting.instance_type) == ("us-east-1", "gpu_1x_a10")
    assert booting.price_cents_per_hour == 75
    assert cloud.account.instances[id_].user_data == request_["user_data"]

    cloud.account.advance(60)
    active = client.instance(id_)
    assert active.status == "active"
    assert active.ip.startswith("127.66.")
    assert active.private_ip != active.ip
    assert client.instances() == [active]
    client.rename(id_, "other")
    assert client.instance(id_).name == "other"

    client.terminate(id_)
    assert client.instance(id_).status == "terminating"
    cloud.account.advance(60)
    assert client.instances() == []
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

    def mounted(path, id_, region="us-east-1"):
        mounts = [{"mount_point": path, "file_system_id": id_}]
        return request_ | {"region_name": region, "file_system_mounts": mounts}

    with pytest.raises(LambdaError, match="wrong-region"):
        client.launch(mounted(made.mount_point, made.id, "us-west-1"))
    with pytest.raises(NotFoundError):
        client.launch(mounted("/data", "other"))
    with pytest.raises(LambdaError, match=INVALID):
        client.launch(mounted("/etc", made.id))
    id_ = client.launch(mounted(made.mount_point, made.id))
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
    assert [each.id for each in client.instance(id_).firewall_rulesets] == [made.id]
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
    id_ = client.launch(request_)
    with pytest.raises(InsufficientCapacityError, match="Not enough capacity"):
        client.launch(request_)
    client.terminate(id_)
    until(lambda: client.instance_types()["gpu_1x_a10"].regions == ["us-east-1"])


def test_the_list_of_capacity_may_be_wrong_both_ways(cloud, client, request_):  # F3
    cloud.account.capacity["gpu_1x_a10"] = {"us-east-1": 1, "us-west-1": 0}
    cloud.account.advertised["gpu_1x_a10"] = {"us-east-1": False, "us-west-1": True}
    assert client.instance_types()["gpu_1x_a10"].regions == ["us-west-1"]
    with pytest.raises(InsufficientCapacityError):
        client.launch(request_ | {"region_name": "us-west-1"})
    assert client.launch(request_)


def test_the_quota_counts_instances(cloud, client, request_):
    cloud.account.quota = 1
    client.launch(request_)
    with pytest.raises(LambdaError, match=r"quota-exceeded.*Contact Support"):
        client.launch(request_)


# The key.


def test_a_wrong_key_is_one_request_and_one_error(cloud, monkeypatch):  # F1
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LAMBDA_API_KEY", "canary-wrong-key")
    with pytest.raises(AccessError, match="Check your API key") as caught:
        open_account(None).instance_types()
    assert "canary" not in str(caught.value)
    assert codes(cloud, "instance_types") == ["global/invalid-api-key"]


def test_the_journal_holds_neither_the_key_nor_user_data(cloud, client, request_):  # F35
    client.launch(request_)
    told = repr(cloud.journal.entries)
    assert "'hostname': 'node-0'" in told
    assert cloud.api_key not in told
    assert "canary-data" not in told


# The pace.


def test_the_account_keeps_its_bounds_and_the_process_keeps_within_them(monkeypatch):  # F4
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
        assert "global/rate-limited" in codes(cloud, "ssh_keys")


# Faults.


@pytest.mark.parametrize("commit", [True, False])
def test_a_reply_that_is_lost_may_have_left_an_instance(cloud, client, request_, commit):  # F5
    cloud.faults.drop("launch", commit=commit)
    with pytest.raises(LostReplyError):
        client.launch(request_)
    assert len(cloud.account.instances) == commit
    found = [each for each in client.instances() if each.tags == TAGS]
    assert len(found) == commit
    assert len(cloud.journal.of("launch")) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_reply_that_takes_too_long_is_lost(cloud, request_, commit):  # F5
    cloud.faults.delay("launch", 60, commit=commit)
    with pytest.raises(LostReplyError):
        Client(cloud.api_key, cloud.url, timeout=0.2).launch(request_)
    until(lambda: cloud.journal.of("launch"))
    until(lambda: len(cloud.account.instances) == commit)


def test_reads_outlast_faults(cloud):  # F6
    cloud.faults.respond("instances", 502)
    cloud.faults.truncate("instances")
    cloud.faults.drop("instances", commit=False)
    assert paced(cloud, 0.001).instances() == []
    assert len(cloud.journal.of("instances")) == 4


@pytest.mark.parametrize("outcome", ["unhealthy", "terminated", "preempted"])
def test_a_boot_can_end_badly(cloud, client, request_, outcome):  # F7
    cloud.account.boots.append(Boot(outcome=outcome, seconds=10))
    id_ = client.launch(request_)
    assert client.instance(id_).status == "booting"
    cloud.account.advance(10)
    assert client.instance(id_).status == outcome


def test_a_boot_can_take_for_ever_and_an_address_come_late(cloud, client, request_):  # F7
    cloud.account.boots += [Boot(outcome="stuck"), Boot(ip_seconds=30)]
    stuck, late = client.launch(request_), client.launch(request_)
    cloud.account.advance(20)
    assert (client.instance(late).status, client.instance(late).ip) == ("active", None)
    cloud.account.advance(86400)
    assert client.instance(stuck).status == "booting"
    assert client.instance(late).ip


def test_an_instance_can_disappear(cloud, client, request_):  # F8
    id_ = client.launch(request_)
    cloud.account.disappear(id_)
    assert client.instances() == []
    with pytest.raises(NotFoundError):
        client.instance(id_)


def test_faults_hit_the_calls_they_are_for(cloud, client):
    cloud.faults.respond("ssh_keys", 500, skip=1, times=1)
    cloud.faults.respond("instances", 500, times=None)
    assert client.ssh_keys() == []
    with pytest.raises(ServerError):
        client.ssh_keys()
    assert client.ssh_keys() == []
    for _ in range(3):
        with pytest.raises(ServerError):
            client.instances()
    cloud.faults.clear()
    assert client.instances() == []


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


def test_machines_stand_behind_instances():
    calls = []

    class Machines:
        def boot(self, instance_id, name, hostname, user_data, ssh_public_key):
            calls.append(("boot", instance_id))
            if name == "broken":
                raise OSError("no address left")
            assert (hostname, user_data) == ("node-0", LAUNCH["user_data"])
            assert ssh_public_key.startswith("ssh-ed25519 ")
            return "127.0.0.9", "10.0.0.9"

        def destroy(self, instance_id):
            calls.append(("destroy", instance_id))

    with FakeCloud(machines=Machines()) as cloud:
        client = Client(cloud.api_key, cloud.url)
        client.add_ssh_key("key", PUBLIC)
        good, broken = client.launch(LAUNCH), client.launch(LAUNCH | {"name": "broken"})
        machine = until(lambda: (m := client.instance(good)).status == "active" and m)
        assert (machine.ip, machine.private_ip) == ("127.0.0.9", "10.0.0.9")
        until(lambda: client.instance(broken).status == "unhealthy")
        assert "no address left" in cloud.account.machine_errors[0]
        client.terminate(good)
        until(lambda: [each.id for each in client.instances()] == [broken])
        assert ("destroy", good) in calls
    assert ("destroy", broken) in calls


def test_the_account_outlives_the_server_and_is_controlled_from_outside(tmp_path, monkeypatch):
    state = ["--state", str(tmp_path / "account.json"), "--api-key", "canary-key"]
    with cloud_process(*state) as cloud:
        client = Client("canary-key", cloud.environment["LAMBDA_API_URL"])
        client.add_ssh_key("key", PUBLIC)
        cloud.add_fault(Fault(operation="launch", action="drop", commit=True))
        with pytest.raises(LostReplyError):
            client.launch(LAUNCH)
        (instance,) = cloud.instances()
        assert instance["name"] == "node-0"
        assert [each["operation"] for each in cloud.journal()] == ["add_ssh_key", "launch"]
        assert "canary" not in json.dumps(cloud.journal())
        cloud.process.kill()
        cloud.process.wait()
    with pytest.raises(UnreachableError):
        client.instances()
    with cloud_process(*state, "--pace", "0.001") as cloud:
        assert cloud.environment["TRAINYARD_LAMBDA_PACE"] == "0.001"
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        account = open_account(None)
        (machine,) = account.instances()
        assert machine.id == instance["id"]
        cloud.set_capacity({"gpu_1x_a10": {"us-west-1": 1}})
        with pytest.raises(InsufficientCapacityError):
            account.launch(LAUNCH)
        cloud.disappear(machine.id)
        assert account.instances() == []


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


def test_the_document_here_is_that_of_lambda_without_prose():
    document = json.loads(
        (Path(__file__).parents[3] / "fakes/lambda_cloud/openapi-1.8.3.json").read_text()
    )
    assert document["info"]["version"] == "1.8.3"
    assert len(document["paths"]) == 17
