"""The end of a rented machine: its timer's settings, and how the key gets there."""

import hmac
import json
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from infra.machines import cloud_init
from infra.machines import host_provider as presence
from infra.places.lambda_cloud import deadline
from infra.places.lambda_cloud.deadline import DeadlineProvider, after
from infra.places.lambda_cloud.errors import AccessError
from node import ending, source_text
from trainyard.access.ssh import SshError

PROPS = {
    "host": {"host": "192.0.2.4", "user": "ubuntu", "hostKey": "ssh-ed25519 A", "port": 22},
    "machine": "i-1",
    "at": "2026-11-21T20:00:00+00:00",
}
INPUTS = PROPS | {"salt": None, "fingerprint": None}


def _settings(folder):
    return Path(f"{folder}{deadline.FILE}")


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """The commands that the machine was asked to run, each with the timer's settings after it."""
    made = []

    def run(connection, command, *, stdin="", seconds):
        call = SimpleNamespace(connection=connection, command=command, stdin=stdin)
        made.append(call)
        # Without sudo, and not in folders of the system: neither is for tests.
        command = command.removeprefix("sudo ")
        for path in (deadline.FILE, cloud_init.TIMER):
            command = command.replace(path, f"{tmp_path}{path}")
            stdin = stdin.replace(f'"{path}":', f'"{tmp_path}{path}":')
        done = subprocess.run(
            command, shell=True, input=stdin, capture_output=True, text=True, check=True
        )
        if command == deadline.WRITE.removeprefix("sudo "):
            call.settings = json.loads(_settings(tmp_path).read_text())
        return done.stdout

    monkeypatch.setattr(deadline, "run", run)
    monkeypatch.setenv("LAMBDA_API_KEY", "canary")
    monkeypatch.setenv("LAMBDA_API_URL", "http://127.0.0.1:8080/")  # its path is appended
    return made


def test_the_timer_is_told_whom_to_ask(calls):
    idle = {"url": "http://10.0.0.1:8768/verdict", "token": "canary", "last": True}
    made = _provider().create(PROPS | {"idle": idle}).outs
    assert calls[0].settings["idle"] == idle
    # Where the setting was off, the timer is told again.
    assert _provider().diff("i-1", {k: v for k, v in made.items() if k != "idle"}, made).changes


def _provider(setting=None):
    provider = DeadlineProvider()
    provider.configure(SimpleNamespace(config={} if setting is None else {"lambdaApiKey": setting}))
    return provider


def test_the_timer_is_told_by_standard_input(calls, tmp_path):  # F35
    made = _provider().create(PROPS)
    assert made.id == "i-1"
    assert made.outs.items() >= PROPS.items()
    (call,) = calls
    assert call.connection.user == "ubuntu"
    assert call.settings == {
        "end": "2026-11-21T20:00:00+00:00",
        "apiUrl": "http://127.0.0.1:8080",
        "apiKey": "canary",
        "instanceId": "i-1",
    }
    assert "canary" not in call.command
    assert "canary" not in str(made.outs)
    files = _settings(tmp_path), Path(f"{tmp_path}{cloud_init.TIMER}")
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (*files, files[0].parent)]
    assert modes == [0o600, 0o755, 0o700]
    assert files[1].read_text() == source_text(ending.FILE)


def test_the_key_may_be_the_stacks_setting(calls, monkeypatch):
    for name in ("LAMBDA_API_KEY", "LAMBDALABS_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    _provider("of the setting").create(PROPS)
    assert calls[0].settings["apiKey"] == "of the setting"
    with pytest.raises(AccessError):
        _provider().create(PROPS)
    assert len(calls) == 1


def test_a_later_end_is_told_to_the_same_timer(calls):
    olds, later = _provider().create(PROPS).outs, PROPS | {"at": "2026-11-21T22:00:00+00:00"}
    assert not _provider().diff("i-1", olds, INPUTS).changes
    difference = _provider().diff("i-1", olds, INPUTS | later)
    assert (difference.changes, difference.replaces) == (True, [])
    assert _provider().update("i-1", olds, INPUTS | later).outs["at"] == later["at"]
    assert calls[1].settings["end"] == later["at"]
    assert _provider().diff("i-1", olds, INPUTS | {"machine": "i-2"}).replaces == ["machine"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("LAMBDA_API_KEY", "another canary"), ("LAMBDA_API_URL", "http://127.0.0.1:8081")],
)
def test_another_key_or_address_is_told_to_the_timer(calls, monkeypatch, name, value):  # F43
    provider = _provider()
    olds = provider.create(PROPS).outs
    monkeypatch.setenv(name, value)
    difference = provider.diff("i-1", olds, INPUTS)
    assert (difference.changes, difference.replaces) == (True, [])
    news = provider.update("i-1", olds, INPUTS).outs
    assert value in calls[1].settings.values()
    assert not provider.diff("i-1", news, INPUTS).changes
    assert "canary" not in json.dumps(news)  # F35


def test_the_fingerprint_tells_nothing_without_its_salt(calls):  # F35
    one, other = (_provider().create(PROPS).outs for _ in range(2))
    assert len(one["salt"]) == 32
    assert one["salt"] != other["salt"]
    assert one["fingerprint"] != other["fingerprint"]
    expected = hmac.new(one["salt"].encode(), b"http://127.0.0.1:8080\ncanary", "sha256")
    assert one["fingerprint"] == expected.hexdigest()


def test_a_refresh_finds_a_timer_as_it_was_told(calls):
    provider = _provider()
    outs = provider.create(PROPS).outs
    found = provider.read("i-1", outs)
    assert (found.id, found.outs) == ("i-1", outs)
    assert calls[1].stdin == outs["salt"]
    assert outs["salt"] not in calls[1].command


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"apiKey": "a dead one"}, "fingerprint"),
        ({"apiUrl": "http://127.0.0.1:1"}, "fingerprint"),
        ({"instanceId": "i-2"}, "fingerprint"),
        ({"end": "2026-11-21T22:00:00+00:00"}, "at"),
        ({"end": None}, "fingerprint"),
        ({"apiKey": 7}, "fingerprint"),
    ],
)
def test_a_refresh_sees_a_timer_that_has_something_else(calls, tmp_path, settings, changed):  # F43
    provider = _provider()
    outs = provider.create(PROPS).outs
    path = _settings(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    found = provider.read("i-1", outs)
    assert found.id == "i-1"
    assert {key for key in outs if found.outs[key] != outs[key]} == {changed}
    assert provider.diff("i-1", found.outs, INPUTS).changes
    assert "dead one" not in json.dumps(found.outs)  # F35


def test_a_refresh_sees_a_timer_that_has_nothing_or_rubbish(calls, tmp_path):
    provider = _provider()
    outs = provider.create(PROPS).outs
    _settings(tmp_path).write_text("{")
    found = provider.read("i-1", outs)
    assert provider.diff("i-1", found.outs, INPUTS).changes
    for path in (_settings(tmp_path), Path(f"{tmp_path}{cloud_init.TIMER}")):
        provider.create(PROPS)
        path.unlink()
        assert provider.read("i-1", outs).id == ""


def test_without_an_end_the_key_is_taken_away(calls):
    _provider().delete("i-1", PROPS)
    assert calls[0].command == "sudo rm -f /etc/trainyard/ttl.json"


@pytest.mark.parametrize("gone", [True, False])
def test_only_a_machine_that_is_gone_may_keep_silent(monkeypatch, gone):
    monkeypatch.setattr(deadline, "run", Mock(side_effect=SshError("cannot be reached")))
    monkeypatch.setattr(presence, "is_gone", lambda host, config: gone)
    outs = PROPS | {"salt": "ab", "fingerprint": "cd"}
    if gone:
        _provider().delete("i-1", outs)
        assert _provider().read("i-1", outs).id == ""
    else:
        for call in (_provider().delete, _provider().read):
            with pytest.raises(SshError):
                call("i-1", outs)


def test_times_are_counted_from_the_launch():
    assert after("2026-11-21T12:30:00+00:00", 1.5) == "2026-11-21T14:00:00+00:00"
    assert after("2026-12-31T23:00:00Z", 2) == "2027-01-01T01:00:00+00:00"
