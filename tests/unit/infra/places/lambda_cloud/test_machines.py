"""Waits on a clock that only tests move, and an account of a few lines: no test here waits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest

from infra.machines import identity
from infra.places.lambda_cloud import machines
from infra.places.lambda_cloud.choice import Pick
from infra.places.lambda_cloud.errors import (
    AccessError,
    InsufficientCapacityError,
    LambdaError,
    LostReplyError,
    ServerError,
)
from infra.service.cancellation import CanceledError, Cancellation
from tests.fakes.plain_account import PlainAccount

PICK = Pick(
    instance_type="gpu_1x_a10",
    region="us-east-1",
    hourly_cost=0.75,
    gpus=1,
    gpu_description="A10",
    vcpus=30,
    memory_mib=204800,
)
WEST = PICK.model_copy(update={"region": "us-west-1"})
ORDER = machines.Order(
    name="node-0",
    stackId="0a1b2c3d",
    node=0,
    count=2,
    choices=[PICK, WEST],
    sshKeyName="key",
    hostname="node-0",
    userData="",
    tags={},
    ttlHours=0,
    firewallRulesetIds={},
    fileSystemMounts={},
)
SECOND = {"name": "node-1", "node": 1}


def changed(order=ORDER, **fields):
    return replace(order, **fields)


def tags_of(order):
    return {tag["key"]: tag["value"] for tag in order.request(PICK)["tags"]}


class Time:
    def __init__(self):
        self.now = 0.0
        self.then = lambda: None

    def sleep(self, seconds):
        self.now += seconds
        self.then()

    def clock(self):
        return machines.Clock(sleep=self.sleep, now=lambda: self.now, scale=1.0)


class Account(PlainAccount):
    """Faults are in lists, one entry for each call."""

    def __init__(self):
        super().__init__()
        self.launches = []
        self.terminate_errors = []
        self.launch_errors = []

    def launch(self, request):
        self.launches.append(request)
        error, made = self.launch_errors.pop(0) if self.launch_errors else (None, True)
        id_ = f"id-{len(self.launches)}"
        if made:
            tags = {tag["key"]: tag["value"] for tag in request["tags"]}
            self.add(id_, request["region_name"], tags)
        if error:
            raise error
        return id_

    def terminate(self, id_):
        if self.terminate_errors:
            raise self.terminate_errors.pop(0)
        super().terminate(id_)

    def instance_types(self):
        return {}


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def account():
    return Account()


def test_a_lost_reply_is_looked_up_before_a_second_launch(account, time):  # F5
    account.launch_errors = [(LostReplyError("lost"), True)]
    id_, pick = machines.launch(account, ORDER, time.clock())
    assert (id_, pick) == ("id-1", PICK)
    assert len(account.launches) == 1


def test_an_instance_that_shows_late_is_found(account, time):  # F5
    account.launch_errors = [(ServerError("bad gateway"), False)]
    tags = tags_of(ORDER)
    looks = machines.POLL_SECONDS * (machines.LOOKS - 1)
    time.then = lambda: time.now >= looks and account.add("late", tags=tags)
    assert machines.launch(account, ORDER, time.clock())[0] == "late"
    assert len(account.launches) == 1


def test_nothing_is_launched_where_the_stack_has_no_firewall_rules(account, time):  # F33
    order = changed(choices=[WEST], firewallRulesetIds={PICK.region: "rules"})
    with pytest.raises(KeyError):
        machines.launch(account, order, time.clock())
    assert account.launches == []


def test_a_launch_is_sent_twice_at_most(account, time):  # F5
    account.launch_errors = [(LostReplyError("lost"), False), (LostReplyError("again"), False)]
    with pytest.raises(LostReplyError, match="again"):
        machines.launch(account, ORDER, time.clock())
    assert len(account.launches) == 2
    assert time.now >= machines.LOOKS * machines.POLL_SECONDS


def test_an_error_of_the_request_is_not_repeated(account, time):
    account.launch_errors = [(AccessError("no"), False)]
    with pytest.raises(AccessError):
        machines.launch(account, ORDER, time.clock())
    assert len(account.launches) == 1


def test_no_room_anywhere_names_all_picks(account, time):  # F3
    account.launch_errors = [(InsufficientCapacityError("full"), False)] * 2
    text = r"to launch node-0 \(gpu_1x_a10 in us-east-1, gpu_1x_a10 in us-west-1\)"
    with pytest.raises(LambdaError, match=text):
        machines.launch(account, ORDER, time.clock())


def test_the_next_pick_is_tried_when_the_first_has_no_room(account, time):  # F3
    account.launch_errors = [(InsufficientCapacityError("full"), False)]
    assert machines.launch(account, ORDER, time.clock()) == ("id-2", WEST)
    # The next instance goes where the first one is, though there may be room again.
    second = changed(**SECOND)
    assert machines.launch(account, second, time.clock())[1] == WEST


def test_what_is_no_longer_wanted_makes_room(account, time):
    machines.launch(account, changed(**SECOND), time.clock())
    # As long as both are wanted, nothing is ended for the other.
    account.launch_errors = [(InsufficientCapacityError("full"), False)]
    with pytest.raises(LambdaError, match="where the stack's other instances are"):
        machines.launch(account, ORDER, time.clock())
    assert set(account.held) == {"id-1"}
    account.launch_errors = [(InsufficientCapacityError("full"), False)]
    id_, pick = machines.launch(account, changed(count=1), time.clock())
    assert set(account.held) == {id_}
    assert pick == PICK


def test_an_instance_whose_tag_somebody_changed_is_not_ended(account, time):
    id_, _ = machines.launch(account, changed(**SECOND), time.clock())
    account.add(id_, tags=account.held[id_].tags | {identity.NODE: "one"})
    account.launch_errors = [(InsufficientCapacityError("full"), False)]
    with pytest.raises(LambdaError):
        machines.launch(account, changed(count=1), time.clock())
    assert set(account.held) == {id_}


def test_two_left_of_one_node_become_one(account, time):  # F12
    tags = tags_of(ORDER)
    account.add("one", tags=tags)
    account.add("two", tags=tags)
    assert machines.launch(account, ORDER, time.clock())[0] == "one"
    assert set(account.held) == {"one"}
    assert account.launches == []


@pytest.mark.parametrize(
    "change",
    [
        {"sshKeyName": "other"},
        {"userData": "other"},
        {"firewallRulesetIds": {"us-east-1": "other", "us-west-1": "other"}},
        {"fileSystemMounts": {"/data": "other"}},
        {"choices": [WEST]},
    ],
)
def test_what_an_older_program_launched_is_ended(account, time, change):  # F12
    account.add("old", tags=tags_of(ORDER))
    id_, _ = machines.launch(account, changed(**change), time.clock())
    assert set(account.held) == {id_} != {"old"}


def test_another_name_does_not_make_it_another_instance(account, time):  # D4
    account.add("old", tags=tags_of(ORDER))
    renamed = changed(name="lambda-ann-0", hostname="lambda-ann-0")
    assert machines.launch(account, renamed, time.clock())[0] == "old"


def test_other_stacks_and_strangers_are_left_alone(account, time):
    tags = tags_of(ORDER)
    account.add("other", tags=tags | {identity.ID: "ffffffff"})
    account.add("stranger")
    machines.launch(account, ORDER, time.clock())
    assert {"other", "stranger"} < set(account.held)


def test_a_launch_tells_the_account_its_end(account, time):  # F49
    order = changed(ttlHours=8.5)
    id_, _ = machines.launch(account, order, time.clock())
    end = datetime.fromisoformat(account.held[id_].tags[identity.END])
    left = end - datetime.now(UTC)
    assert timedelta(hours=8.4) < left <= timedelta(hours=8.5)
    # It changes with each attempt, so it is not part of the instance's digest.
    later = changed(order, ttlHours=9)
    assert machines.launch(account, later, time.clock())[0] == id_
    assert identity.END not in tags_of(ORDER)  # it has no end


def test_user_data_is_in_no_representation():  # F35
    assert "canary" not in repr(changed(userData="canary"))


def test_terminate_is_tried_every_30_s_for_15_min(account, time):  # F9
    account.add("a")
    account.terminate_errors = [ServerError("try again in 60 seconds")] * 100
    with pytest.raises(LambdaError, match=r"for 15 min and .* kept in the state"):
        machines.terminate(account, ["a"], time.clock())
    assert 14 * 60 <= time.now <= 15 * 60
    assert 100 - len(account.terminate_errors) == 31
    assert "a" in account.held


def test_one_that_cannot_be_ended_keeps_no_other_one(account, time):  # F9 F49
    for id_ in "abc":
        account.add(id_)
    end = account.terminate

    def terminate(id_):
        if id_ == "a":
            raise ServerError("500")
        end(id_)

    account.terminate = terminate
    with pytest.raises(LambdaError, match=r"^instance a could not .* \(500.*\); it is kept"):
        machines.terminate(account, "abc", time.clock())
    assert set(account.held) == {"a"}


@pytest.mark.parametrize("silence", machines.SILENT)
def test_a_silent_api_says_nothing_of_an_instance(account, time, silence):  # F4 F9
    """It shows neither an end of the instance nor an end of the wait."""
    account.add("a")
    _up(account, "a")

    def silent_until(moment, answer):
        def asked(*arguments):
            if time.now < moment:
                raise silence("no answer")
            return answer(*arguments)

        return asked

    account.instances = silent_until(20, account.instances)
    assert set(machines.await_active(account, ["a"], 1800, time.clock())) == {"a"}
    account.terminate_errors = [ServerError("500")] * 2
    account.instance = silent_until(time.now + 50, account.instance)
    machines.terminate(account, ["a"], time.clock())
    assert account.held == {}


def test_a_wrong_key_is_not_tried_again(account, time):  # F1
    account.add("a")
    account.terminate_errors = [AccessError("no")] * 2
    with pytest.raises(AccessError):
        machines.terminate(account, ["a"], time.clock())
    assert len(account.terminate_errors) == 1


def test_what_is_gone_already_counts_as_ended(account, time):  # F9
    machines.terminate(account, ["gone"], time.clock())
    assert time.now == 0


def test_terminate_waits_until_it_is_gone(account, time):  # A43
    account.add("a")
    account.terminate = lambda _: account.set("a", status="terminating")
    time.then = lambda: time.now >= 60 and account.held.clear()
    machines.terminate(account, ["a"], time.clock())
    assert time.now >= 60


@pytest.mark.parametrize(("scale", "waited"), [(1.0, "15 min"), (0.2, "3 min"), (0.005, "60 s")])
def test_one_that_never_ends_is_told_with_the_time_waited(account, time, scale, waited):
    account.add("a", status="terminating")
    account.terminate = lambda _: None
    clock = replace(time.clock(), scale=scale)
    with pytest.raises(LambdaError, match=f"not terminated after {waited} and still b"):
        machines.terminate(account, ["a"], clock)


def test_a_refused_end_has_its_time_however_small_the_scale(account, time):  # F9
    account.add("a")
    account.terminate_errors = [ServerError("try again in 60 seconds")] * 1000
    with pytest.raises(LambdaError, match="could not be terminated for 60 s and is"):
        machines.terminate(account, ["a"], replace(time.clock(), scale=0.005))
    assert 59 <= time.now <= 60


def _up(account, id_):
    account.set(id_, status="active", ip="198.51.100.7")


def test_active_needs_an_address_too(account, time):  # F6
    account.add("a", status="active")
    time.then = lambda: time.now >= 100 and _up(account, "a")
    found = machines.await_active(account, ["a"], 1800, time.clock())
    assert found["a"].ip == "198.51.100.7"
    assert time.now >= 100


def test_booting_is_told_now_and_then(account, time, capsys):  # A16
    account.add("a")
    time.then = lambda: time.now >= 300 and _up(account, "a")
    machines.await_active(account, ["a"], 1800, time.clock())
    told = capsys.readouterr().err.count("Instance a in booting status")
    assert told == 10


@pytest.mark.parametrize("status", ["booting", "hibernating"])
def test_a_late_one_is_ended_at_the_deadline(account, time, status):  # F6, F7
    account.add("a", status=status)
    account.add("b")
    _up(account, "b")
    with pytest.raises(LambdaError) as caught:
        machines.await_active(account, ["a", "b"], 1800, time.clock())
    assert f"instance a ({status}) did not become active after 30 min" in str(caught.value)
    assert "Run up with --refresh" in str(caught.value)
    assert 1800 <= time.now <= 1800 + machines.POLL_SECONDS
    assert set(account.held) == {"b"}


@pytest.mark.parametrize("status", ["unhealthy", "preempted", "terminated", None])
def test_a_dead_one_fails_at_once(account, time, status):  # F7
    account.add("b")
    if status:
        account.add("a", status=status)
    with pytest.raises(LambdaError, match="instance a "):
        machines.await_active(account, ["a", "b"], 1800, time.clock())
    assert time.now <= machines.POLL_SECONDS
    assert "b" in account.held


def test_an_instance_that_was_launched_twice_is_ended(account, time):  # F5
    tags = tags_of(ORDER)
    other = tags_of(changed(node=1))
    stranger = tags | {identity.ID: "ffffffff"}
    found = {"a": tags, "twin": tags, "b": other, "c": stranger, "d": {}}
    for id_, own in found.items():
        account.add(id_, tags=own)
        _up(account, id_)
    assert set(machines.await_active(account, ["a"], 1800, time.clock())) == {"a"}
    assert set(account.held) == {"a", "b", "c", "d"}


def test_a_gap_in_the_list_does_not_make_an_instance_one_that_ended(account, time):  # F6
    account.add("a")
    gaps = (range(20), range(60, 120))  # it may be listed late, too
    listed = account.instances
    account.instances = lambda: [] if any(time.now in gap for gap in gaps) else listed()
    time.then = lambda: time.now >= 200 and _up(account, "a")
    assert set(machines.await_active(account, ["a"], 1800, time.clock())) == {"a"}


def test_an_outage_is_waited_out_until_the_deadline(account, time):
    account.add("a")
    account.instances = Mock(side_effect=ServerError("503"))
    with pytest.raises(ServerError):
        machines.await_active(account, ["a"], 600, time.clock())
    assert time.now >= 600


def test_a_wait_is_canceled(account):  # F11
    account.add("a")
    cancellation = Cancellation()
    cancellation.cancel()
    clock = machines.Clock(sleep=cancellation.sleep, scale=1.0)
    with pytest.raises(CanceledError, match="run up again to go on, or destroy"):
        machines.await_active(account, ["a"], 1800, clock)
    with pytest.raises(CanceledError):
        machines.launch(account, ORDER, clock)
    assert account.launches == []
    assert "a" in account.held
