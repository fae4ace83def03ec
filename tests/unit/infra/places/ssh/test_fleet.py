"""Hosts that are there already: looked at side by side, refused together."""

import asyncio
import threading
from types import SimpleNamespace

import pulumi
import pytest

from infra.machines import probe
from infra.machines.fleet import FleetArgs
from infra.machines.probe import Facts
from infra.places.ssh.fleet import inspect
from infra.places.ssh.settings import SshHost
from infra.settings.nodes import Group
from tests.host_facts import FACTS
from trainyard.access.ssh import SshError

WORKER = Group(name="worker", cpus=3)


@pytest.fixture(autouse=True)
def loop():
    """Outputs want an event loop."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    asyncio.set_event_loop(None)
    made.close()


def _host(address, **changes):
    values = {
        "address": address,
        "user": "ada",
        "host_key": "ssh-ed25519 AAAA",
        "port": 22,
        "private_address": address,
    }
    return SshHost(**values | changes)


def _fleet(*hosts, key_file=None, python_environment=""):
    settings = SimpleNamespace(
        python_environment=python_environment,
        worker=WORKER,
        groups=(),
        ssh_key_file=key_file,
        runtime="process",
        reservation=None,
    )
    return inspect(hosts, FleetArgs(settings=settings))()


def _machines(*hosts, **changes):
    return _fleet(*hosts, **changes).machines


def test_what_a_host_has_is_what_its_machine_offers(monkeypatch):
    monkeypatch.setattr(probe, "probe", lambda _: FACTS)
    first, second = _machines(
        _host("192.0.2.4"), _host("192.0.2.5", port=2222, gpus=1, private_address="10.0.0.5")
    )
    assert (first.name, first.identity, first.address) == (
        "host-0",
        "ada@192.0.2.4",
        "192.0.2.4",
    )
    assert (first.base, first.environment) == (
        f"/srv/ada/.trainyard/{pulumi.get_project()}-{pulumi.get_stack()}",
        f"/srv/ada/.trainyard/{pulumi.get_project()}-{pulumi.get_stack()}/env",
    )
    assert (first.cpus, first.memory_mib, first.gpus) == (8, 32768, 2)
    assert first.programs == {}
    assert first.group == WORKER  # for it is of no other
    assert (second.name, second.identity) == ("host-1", "ada@192.0.2.5:2222")
    assert (second.address, second.gpus) == ("10.0.0.5", 1)
    assert second.path("~/data") == "/srv/ada/data"
    assert second.path("/srv/a~b") == "/srv/a~b"
    (own,) = _machines(_host("192.0.2.4"), python_environment="/opt/conda")
    assert own.python == "/opt/conda/bin/python"


def test_all_faults_of_all_hosts_are_told_at_once(monkeypatch):  # F2
    def look(connection):
        match connection.host:
            case "away":
                raise SshError("ada@away cannot be reached by SSH")
            case "full":
                return Facts(**{**vars(FACTS), "free_mib": 10, "free_tmp_mib": 5})
            case _:
                return FACTS

    monkeypatch.setattr(probe, "probe", look)
    with pytest.raises(pulumi.RunError) as raised:
        _machines(_host("away"), _host("full"), _host("fine"), _host("cpu", gpus=4))
    faults = [line for line in str(raised.value).splitlines() if line.startswith("  - ")]
    assert len(faults) == 4
    assert "ada@away cannot be reached" in faults[0]
    assert "ada@full has 10 MiB free in /srv/ada" in faults[1]
    assert "ada@full has 5 MiB free in /var/tmp" in faults[2]
    assert "ada@cpu has 2 GPUs, and its setting gpus says 4" in faults[3]


def test_hosts_are_looked_at_side_by_side(monkeypatch):
    together = threading.Barrier(8, timeout=10)

    def look(_):
        together.wait()
        return FACTS

    monkeypatch.setattr(probe, "probe", look)
    assert len(_machines(*(_host(f"h{i}") for i in range(8)))) == 8


def test_the_key_file_is_read_once_for_all(monkeypatch, key_file):
    text, keys = key_file.read_text(), []

    def look(connection):
        keys.append(connection.private_key)
        return FACTS

    monkeypatch.setattr(probe, "probe", look)
    _machines(_host("a"), _host("b"), key_file=key_file)
    _machines(_host("a"))  # the SSH agent's
    assert keys == [text, text, ""]


def test_a_key_file_that_cannot_be_used_names_the_setting(tmp_path):  # F38
    with pytest.raises(
        pulumi.RunError, match=r"sshKeyFile: cannot read the stack.s key file .*No such file"
    ):
        _machines(_host("a"), key_file=tmp_path / "none")


def test_users_log_in_with_their_own_key_file_or_agent(monkeypatch, key_file):  # F35
    monkeypatch.setattr(probe, "probe", lambda _: FACTS)
    for given, shown in ((key_file, str(key_file)), (None, "")):
        declared = _fleet(_host("a"), key_file=given)
        output = declared.login.output(declared.machines[0])
        assert output["keyFile"] == declared.login.key_file == shown
        assert declared.expires_at == ""
        if given:
            assert output["privateKey"] == ""
