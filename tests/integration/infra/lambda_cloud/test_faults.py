"""An API that loses replies, refuses, lies and breaks: one instance a node, and none left."""

import pytest

from infra.hosts.lambda_cloud import machines
from tests.fakes.lambda_cloud import Boot

pytestmark = pytest.mark.integration

SOON = "0.05"  # minutes


def test_too_many_requests_are_asked_again_later(rented, cloud):  # F4
    for operation in ("instance_types", "launch", "instances", "add_ssh_key"):
        cloud.faults.refuse(operation, "global/rate-limited", headers={"Retry-After": "0"})
    rented.done("up")
    assert len(cloud.account.launched) == 2
    rented.done("destroy")


@pytest.mark.parametrize("fault", ["drop", "truncate", "bad gateway"])
def test_a_launch_whose_reply_is_lost_is_found(rented, cloud, fault):  # F5, F6
    if fault == "drop":
        cloud.faults.drop("launch", commit=True)
    elif fault == "truncate":
        cloud.faults.truncate("launch")
    else:
        cloud.faults.respond("launch", 502, commit=True)
    rented.declare(count=1)
    assert "looking for the instance" in rented.done("up")
    assert len(cloud.account.launched) == 1
    assert rented.live() == rented.recorded() == set(cloud.account.launched)


def test_a_launch_that_never_arrived_is_made_once_more(rented, cloud):  # F5
    rented.declare(count=1)
    cloud.faults.drop("launch", commit=False)
    rented.done("up")
    assert len(cloud.journal.of("launch")) == 2
    assert len(cloud.account.launched) == 1
    # And the client looks for it between the two; it does not send it again at once.
    operations = [entry.operation for entry in cloud.journal.entries]
    first = operations.index("launch")
    second = operations.index("launch", first + 1)
    assert operations[first + 1 : second].count("instances") >= 3


def test_a_launch_lost_twice_is_ended_by_the_next_destroy(rented, cloud):  # F5
    rented.declare(count=1)
    cloud.faults.drop("launch", commit=False)
    cloud.faults.drop("launch", commit=True)
    rented.failed("up")
    assert rented.recorded() == set()
    assert len(rented.live()) == 1
    assert "of this stack, but in no state" in rented.done("destroy")
    assert rented.live() == set()


def test_a_launch_lost_twice_is_taken_over_by_the_next_up(rented, cloud):  # F5
    rented.declare(count=1)
    cloud.faults.drop("launch", commit=False)
    cloud.faults.drop("launch", commit=True)
    rented.failed("up")
    assert "Taking over instance" in rented.done("up")
    assert rented.live() == rented.recorded()
    assert len(cloud.account.launched) == 1


@pytest.mark.parametrize("outcome", ["stuck", "unhealthy", "terminated", "preempted"])
def test_an_instance_that_does_not_come_up_is_ended(rented, cloud, outcome):  # F7, A16
    rented.declare(timeoutMinutes=SOON)
    cloud.account.boots = [Boot(), Boot(outcome=outcome)]
    text = rented.failed("up")
    dead = cloud.account.launched[1]
    assert f"instance {dead} (" in text
    assert "Run up with --refresh" in text
    if outcome == "stuck":
        assert f"Instance {dead} in booting status" in text
    assert rented.live() == {cloud.account.launched[0]}
    assert len(rented.recorded()) == 2  # the id was there before the wait
    rented.done("up", "--refresh")
    assert rented.live() == rented.recorded()
    assert cloud.account.launched[0] in rented.live()


def test_a_dead_instance_fails_long_before_the_deadline(rented, cloud):  # F7
    rented.declare(timeoutMinutes="30")
    cloud.account.boots = [Boot(outcome="unhealthy")]
    rented.failed("up")


def test_an_active_instance_without_an_address_is_waited_for(rented, cloud):  # F6
    cloud.account.boots = [Boot(ip_seconds=1.0), Boot()]
    rented.done("up")
    addresses = rented.resource("active")["outputs"]["addresses"]
    assert all(each["ip"] for each in addresses.values())


def test_a_status_that_nobody_knows_is_not_active(rented, cloud):  # F6
    rented.declare(count=1, timeoutMinutes=SOON)
    cloud.account.boots = [Boot(seconds=60)]
    process = rented.start("up")
    rented.wait_for(lambda: cloud.account.launched)
    cloud.account.distort(cloud.account.launched[0], status="hibernating")
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "(hibernating) did not become active" in text
    assert "Traceback" not in text


def test_an_api_that_is_down_while_they_boot_is_asked_again(rented, cloud):
    cloud.account.boots = [Boot(seconds=0.5), Boot(seconds=0.5)]
    cloud.faults.respond("instances", 503, skip=3, times=10)
    rented.done("up")


@pytest.mark.parametrize("code", ["global/internal-error", "global/invalid-parameters"])
def test_a_terminate_that_is_refused_is_tried_again(rented, cloud, code):  # F9
    rented.done("up")
    cloud.faults.refuse("terminate", code, "Try again in 60 seconds.", times=2)
    assert "is not ended yet, trying again" in rented.done("destroy")
    assert rented.live() == set()


def test_a_terminate_that_is_always_refused_keeps_it_in_the_state(  # F9
    rented, cloud, monkeypatch
):
    monkeypatch.setattr(machines, "LEAST_LIMIT_SECONDS", 1.0)
    rented.declare(count=1)
    rented.done("up")
    ids = rented.recorded()
    cloud.faults.refuse("terminate", "global/internal-error", "No.", times=None)
    text = rented.failed("destroy")
    assert "is still billed" in text
    assert rented.recorded() == ids == rented.live()
    cloud.faults.clear()
    rented.done("destroy")
    assert rented.live() == set()


def test_what_is_gone_already_counts_as_ended(rented, cloud):  # F9
    rented.done("up")
    for id_ in rented.recorded():
        cloud.account.disappear(id_)
    rented.done("destroy")
    assert rented.resources() == []


def test_destroy_waits_until_they_have_ended(rented, cloud):  # A43
    rented.declare(count=1)
    rented.done("up")
    cloud.account.terminate_seconds = 1.0
    rented.done("destroy")
    assert cloud.account.instances == {}
