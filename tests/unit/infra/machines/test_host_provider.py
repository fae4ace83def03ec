"""Whether a machine is gone: the cloud that is asked, and the meaning of its answer."""

from types import SimpleNamespace

import pytest

from infra.machines import host_provider as presence
from infra.machines import sources
from infra.machines.source import Cloud
from infra.places.lambda_cloud import account as lambda_account
from infra.places.lambda_cloud import machines
from infra.places.lambda_cloud.errors import LambdaError, NotFoundError


def test_the_cloud_that_rented_a_machine_out_is_asked_with_its_own_key(monkeypatch):  # F8
    asked = []

    def cloud(name):
        def account(key):
            def is_gone(instance):
                asked.append((name, instance, key))
                return name == "two"

            def end(instances):
                asked.append((f"end {name}", *instances, key))

            return SimpleNamespace(is_gone=is_gone, end=end)

        return Cloud(
            title=name,
            api_key=f"{name}Key",
            api_key_text="",
            instance=f"{name}Id",
            account=account,
            module=name,
        )

    monkeypatch.setattr(sources, "CLOUDS", (cloud("one"), cloud("two")))
    config = {"oneKey": "secret one"}
    assert not presence.is_gone({"host": "192.0.2.4"}, config)  # not rented
    assert asked == []
    assert not presence.is_gone({"oneId": "i-1"}, config)
    assert presence.is_gone({"twoId": "i-2"}, config)
    assert asked == [("one", "i-1", "secret one"), ("two", "i-2", None)]
    asked.clear()
    assert not presence.end({"host": "192.0.2.4"}, config)
    assert presence.end({"oneId": "i-1"}, config)
    assert asked == [("end one", "i-1", "secret one")]


def test_an_instance_is_ended_and_waited_for(monkeypatch):  # F49
    ended, statuses = [], ["terminating", "terminated"]
    account = SimpleNamespace(
        terminate=ended.append,
        instance=lambda _: SimpleNamespace(status=statuses.pop(0)),
    )
    monkeypatch.setattr(lambda_account, "open_account", lambda _: account)
    clock = machines.Clock(sleep=lambda _: None, scale=1)
    monkeypatch.setattr(machines, "Clock", lambda: clock)
    assert presence.end({"instanceId": "i-1"}, {})
    assert (ended, statuses) == (["i-1"], [])


def test_states_name_instances_of_lambda_by_this_property():
    cloud = sources.CLOUDS[0]
    assert (cloud.instance, cloud.api_key) == ("instanceId", "lambdaApiKey")


@pytest.mark.parametrize(
    ("status", "gone"),
    [("active", False), ("unhealthy", False), ("preempted", False), ("terminated", True)],
)
def test_an_instance_is_gone_once_it_has_ended(monkeypatch, status, gone):  # F8
    keys = []

    def open_account(key):
        keys.append(key)
        return SimpleNamespace(instance=lambda id_: SimpleNamespace(status=status))

    monkeypatch.setattr(lambda_account, "open_account", open_account)
    assert presence.is_gone({"instanceId": "i-1"}, {"lambdaApiKey": "k"}) is gone
    assert keys == ["k"]


@pytest.mark.parametrize(("error", "gone"), [(NotFoundError, True), (LambdaError, None)])
def test_an_account_that_does_not_know_it_says_so(monkeypatch, error, gone):  # F8
    def instance(_):
        raise error("said so")

    monkeypatch.setattr(
        lambda_account, "open_account", lambda _: SimpleNamespace(instance=instance)
    )
    if gone is None:
        with pytest.raises(LambdaError, match="said so"):
            presence.is_gone({"instanceId": "i-1"}, {})
    else:
        assert presence.is_gone({"instanceId": "i-1"}, {}) is gone
