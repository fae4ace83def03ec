"""The resources that a stack makes in the account, adopts, changes and leaves."""

import pytest

from infra.machines import keys
from infra.places.lambda_cloud.errors import CAPACITY
from tests.fakes.lambda_cloud.account import CREATED
from tests.fakes.lambda_cloud.catalogue import region

pytestmark = pytest.mark.integration

EAST = {"type": "gpu_1x_a10", "region": "us-east-1"}
WEST = {"type": "gpu_1x_a10", "region": "us-west-1"}
DEAR = {"type": "gpu_1x_h100_pcie", "region": "us-west-3"}


def _add_key(cloud, public, name="test-ssh-010"):
    cloud.account.ssh_keys["foreign"] = {"id": "foreign", "name": name, "public_key": public}


def _written_pair(path):
    pair = keys.generate()
    keys.write(path, pair)
    return pair


def test_up_and_down_leave_nothing_but_what_is_not_theirs(rented, cloud):  # F20, A41 to A43
    stranger = cloud.account.add_instance("stranger")
    foreign = {"id": "foreign", "name": "theirs", "region": region("us-east-1"), "rules": []}
    cloud.account.rulesets["foreign"] = foreign | {"created": CREATED}
    text = rented.done("up")
    assert "Adding key name test-ssh-010" in text  # A8
    place = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10"}
    for id_ in rented.recorded():  # A15
        name = cloud.account.instances[id_].name
        asked = place | {"ssh_key_names": ["test-ssh-010"], "name": name}
        assert f"Launching instance using key name test-ssh-010 and name {name}\n" in text
        assert f"Launch instance with parameters {asked}\n" in text
        assert f"Launched instance {name}: {id_}\n" in text
    assert "2 x gpu_1x_a10 in us-east-1: 1.50 $/h, 12.00 $ for the stack's 8 h" in text
    assert rented.live() == rented.recorded() | {stranger.id}
    for instance in cloud.account.instances.values():
        if instance is not stranger:
            assert instance.tags["trainyard:stack"] == "dev"
            assert len(instance.rulesets) == 1
    rented.done("up", "--expect-no-changes")
    rented.done("refresh", "--expect-no-changes")
    rented.done("up", "--refresh", "--expect-no-changes")
    ids = rented.recorded()
    text = rented.done("destroy")
    assert all(f"Terminated instance {id_}" in text for id_ in ids)  # A42
    assert "the account holds nothing of stack dev" in text
    assert rented.live() == {stranger.id}
    assert cloud.account.ssh_keys == {}
    assert set(cloud.account.rulesets) == {"foreign"}
    assert not rented.key_file.exists()


def test_the_key_of_the_account_is_nowhere(rented, cloud):  # F35
    printed = rented.done("up", "--debug") + rented.done("preview", "--diff")
    state = rented.state_file.read_text()
    for text in (printed, state):
        assert cloud.api_key not in text
        assert "canary-user-data" not in text
        assert "OPENSSH PRIVATE KEY" not in text


def test_all_launches_refused(rented, cloud):  # F3, A20
    # As the API lists it, there is capacity.
    cloud.faults.refuse("launch", CAPACITY, times=None)
    text = rented.failed("up")
    assert "not enough capacity to launch" in text
    assert "gpu_1x_h100_pcie in us-west-3 (3.29 $/h)" in text
    assert rented.live() == set()
    # Capacity elsewhere, and the next up goes there: nothing was pinned by a launch that failed.
    cloud.faults.clear()
    cloud.account.capacity["gpu_1x_a10"] = {}
    rented.declare(candidates=[EAST, DEAR])
    rented.done("up")
    assert {i.region for i in cloud.account.instances.values()} == {"us-west-3"}
    rented.done("destroy")


def test_a_live_cluster_is_not_moved(rented, cloud):
    rented.done("up")
    ids = rented.recorded()
    cloud.account.capacity["gpu_1x_a10"] = {"us-west-1": 5}
    rented.declare(candidates=[DEAR, WEST, EAST])
    rented.done("up")
    assert rented.recorded() == ids
    # A price above the bound is refused, and does not make it move to a cheaper place.
    rented.declare(candidates=[EAST], count=4, maxHourlyCost=2)
    text = rented.failed("up")
    assert "where the stack's instances are: 3.00 $/h is above maxHourlyCost 2" in text
    assert rented.recorded() == ids
    # It moves when the settings no longer name the place.
    rented.declare(candidates=[DEAR])
    rented.done("up")
    assert {i.region for i in cloud.account.instances.values()} == {"us-west-3"}
    assert rented.live() == rented.recorded()
    assert not ids & rented.recorded()


def test_rules_change_in_place_and_drift_is_put_right(rented, cloud):
    rented.done("up")
    ids = rented.recorded()
    rented.declare(cidrs=["203.0.113.0/24", "198.51.100.7/32"])
    rented.done("up")
    assert rented.recorded() == ids
    for ruleset in cloud.account.rulesets.values():
        assert len(ruleset["rules"]) == 2
        ruleset["rules"] = []  # somebody at the dashboard
    assert "drift" in rented.done("refresh")
    rented.done("up")
    assert {len(ruleset["rules"]) for ruleset in cloud.account.rulesets.values()} == {2}


def test_what_was_ended_elsewhere_is_made_again(rented, cloud):  # F8
    rented.done("up")
    gone, kept = (rented.resource(f"node-{node}")["id"] for node in range(2))
    cloud.account.disappear(gone)
    rented.done("refresh")
    rented.done("up")
    assert rented.resource("node-1")["id"] == kept
    assert rented.live() == rented.recorded()
    assert len(rented.recorded()) == 2
    addresses = rented.resource("active")["outputs"]["addresses"]
    assert set(addresses) == rented.recorded()
    rented.done("up", "--expect-no-changes")


def test_a_new_address_shows_and_goes_on(rented, cloud):
    rented.done("up")
    id_ = rented.resource("node-0")["id"]
    cloud.account.instances[id_].ip = "127.66.9.9"
    rented.done("refresh")
    assert rented.resource("active")["outputs"]["addresses"][id_]["ip"] == "127.66.9.9"
    rented.done("up", "--expect-no-changes")


def test_another_key_of_that_name_is_left_alone(rented, cloud):  # F10
    _add_key(cloud, keys.generate().public)
    before = dict(cloud.account.ssh_keys)
    assert "is not there; put its private key there" in rented.failed("up")
    _written_pair(rented.key_file)
    assert "is not that of" in rented.failed("up")
    assert rented.live() == set()
    rented.done("destroy")
    assert cloud.account.ssh_keys == before
    assert rented.key_file.exists()


def test_the_same_key_is_adopted_and_stays(rented, cloud):  # A11, F10
    pair = _written_pair(rented.key_file)
    _add_key(cloud, f"{pair.public} me@laptop")
    assert "Adding key name" not in rented.done("up")
    rented.done("up", "--expect-no-changes")
    text = rented.done("destroy")
    assert "kept: the SSH key test-ssh-010" in text
    assert set(cloud.account.ssh_keys) == {"foreign"}
    assert rented.key_file.read_text() == pair.private


def test_a_key_that_only_the_file_has_is_uploaded(rented, cloud):  # A9
    pair = _written_pair(rented.key_file)
    assert "Adding key name" in rented.done("up")
    (held,) = cloud.account.ssh_keys.values()
    assert keys.same(held["public_key"], pair.public)
    rented.done("destroy")
    assert cloud.account.ssh_keys == {}
    assert rented.key_file.read_text() == pair.private


def test_a_file_system_is_mounted_and_outlives_the_stack(rented, cloud):  # A44
    rented.declare(fileSystem="datasets", candidates=[EAST])
    rented.done("up")
    (made,) = cloud.account.file_systems
    assert [i.mounts for i in cloud.account.instances.values()] == [{"/data": made}] * 2
    assert "kept: file system datasets in us-east-1" in rented.done("destroy")
    rented.done("up")
    assert rented.resource("data")["outputs"]["owned"] is False
    rented.done("destroy")
    assert set(cloud.account.file_systems) == {made}
