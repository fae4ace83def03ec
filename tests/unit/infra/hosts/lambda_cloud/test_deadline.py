"""The end of a rented machine: what its timer is told, and how the key gets there."""

import json
from types import SimpleNamespace

import pytest

from cluster.ssh import SshError
from infra.hosts import presence
from infra.hosts.lambda_cloud import deadline
from infra.hosts.lambda_cloud.deadline import DeadlineProvider, after
from infra.hosts.lambda_cloud.errors import InvalidApiKeyError

PROPS = {
    "host": {"host": "192.0.2.4", "user": "ubuntu", "hostKey": "ssh-ed25519 A", "port": 22},
    "machine": "i-1",
    "at": "2026-11-21T20:00:00+00:00",
}


@pytest.fixture
def calls(monkeypatch):
    """What machines were asked to run."""
    made = []

    def run(connection, command, *, stdin="", seconds):
        made.append(SimpleNamespace(connection=connection, command=command, stdin=stdin))
        return ""

    monkeypatch.setattr(deadline, "run", run)
    monkeypatch.setenv("LAMBDA_API_KEY", "canary")
    monkeypatch.setenv("LAMBDA_API_URL", "http://127.0.0.1:8080")
    return made


def _provider(setting=None):
    provider = DeadlineProvider()
    provider.configure(SimpleNamespace(config={} if setting is None else {"lambdaApiKey": setting}))
    return provider


def test_the_timer_is_told_by_standard_input(calls):  # F35
    made = _provider().create(PROPS)
    assert (made.id, made.outs) == ("i-1", PROPS)
    (call,) = calls
    assert call.connection.user == "ubuntu"
    assert json.loads(call.stdin) == {
        "deadline": 1795291200,
        "apiUrl": "http://127.0.0.1:8080",
        "apiKey": "canary",
        "instanceId": "i-1",
    }
    assert "canary" not in call.command
    assert "canary" not in str(made.outs)
    assert "umask 077" in call.command


def test_the_key_may_be_the_stacks_setting(calls, monkeypatch):
    for name in ("LAMBDA_API_KEY", "LAMBDALABS_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    _provider("of the setting").create(PROPS)
    assert json.loads(calls[0].stdin)["apiKey"] == "of the setting"
    with pytest.raises(InvalidApiKeyError):
        _provider().create(PROPS)
    assert len(calls) == 1


def test_a_later_end_is_told_to_the_same_timer(calls):
    later = PROPS | {"at": "2026-11-21T22:00:00+00:00"}
    difference = _provider().diff("i-1", PROPS, later)
    assert (difference.changes, difference.replaces) == (True, [])
    assert _provider().update("i-1", PROPS, later).outs == later
    assert json.loads(calls[0].stdin)["deadline"] == 1795291200 + 2 * 3600
    assert _provider().diff("i-1", PROPS, PROPS | {"machine": "i-2"}).replaces == ["machine"]


def test_without_an_end_the_key_is_taken_away(calls):
    _provider().delete("i-1", PROPS)
    assert calls[0].command == "sudo rm -f /etc/trainyard/ttl.json"


@pytest.mark.parametrize("gone", [True, False])
def test_only_a_machine_that_is_gone_may_keep_silent(monkeypatch, gone):
    def run(*_, **__):
        raise SshError("cannot be reached")

    monkeypatch.setattr(deadline, "run", run)
    monkeypatch.setattr(presence, "is_gone", lambda host, key: gone)
    if gone:
        _provider().delete("i-1", PROPS)
    else:
        with pytest.raises(SshError):
            _provider().delete("i-1", PROPS)


def test_times_are_counted_from_the_launch():
    assert after("2026-11-21T12:30:00+00:00", 1.5) == "2026-11-21T14:00:00+00:00"
    assert after("2026-12-31T23:00:00Z", 2) == "2027-01-01T01:00:00+00:00"
