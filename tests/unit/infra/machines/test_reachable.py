"""The wait for a new machine, and its end."""

from dataclasses import replace
from types import SimpleNamespace

import pulumi
import pytest

from infra.machines import cloud_init, probe, reachable, sources
from infra.machines.probe import Facts
from infra.machines.reachable import ReachableProvider
from infra.service.cancellation import CanceledError
from tests import host_facts, ran
from trainyard.access.ssh import (
    HostKeyError,
    LoginRefusedError,
    NoKeyError,
    SshError,
    UnreachableError,
)
from trainyard.access.ssh_run import CommandError

PROPS = {
    "host": {"host": "192.0.2.4", "user": "trainyard", "hostKey": "ssh-ed25519 A", "port": 22},
    "machine": "i-1",
    "address": "10.0.0.4",
    "timeoutMinutes": 30,
}
FACTS = replace(
    host_facts.FACTS,
    cpus=30,
    memory_mib=204800,
    gpus=1,
    home="/srv/trainyard",
    interfaces={"10.0.0.4": "eno1"},
)
REFUSED = UnreachableError("trainyard@192.0.2.4 cannot be reached by SSH (refused)")
NO_USER = LoginRefusedError("trainyard@192.0.2.4 does not let this key in")
OTHER = HostKeyError("trainyard@192.0.2.4 does not show the host key")
# Their words do not matter: faults told apart by words kept the wait going, and it was billed.
NO_KEY = NoKeyError("trainyard@192.0.2.4 does not let any key of the SSH agent in, which has none")
OTHER_FAULT = SshError("trainyard@192.0.2.4 does not let anybody in")


class Machine:
    """A machine that fails some logins; time passes only in waits."""

    def __init__(self):
        self.failures = []
        self.restarts = []  # of its sshd, in its first boot
        self.boot = None
        self.now = 1000.0
        self.commands = []
        self.facts = FACTS

    def run(self, _connection, command, *, seconds):
        self.commands.append((command, seconds))
        if command == "true" and self.failures:
            raise self.failures.pop(0)
        if command != "true" and self.restarts:
            raise self.restarts.pop(0)
        if command != "true" and self.boot is not None:
            raise self.boot
        return ""

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(reachable, "run", made.run)
    monkeypatch.setattr(probe, "probe", lambda _: made.facts)
    monkeypatch.setattr(reachable, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def ended(monkeypatch):
    """The machines that were ended, among those that a cloud's id marks as rented."""
    found = []
    cloud = sources.CLOUDS[0]
    lent = replace(cloud, account=lambda _key: SimpleNamespace(end=found.extend))
    monkeypatch.setattr(sources, "CLOUDS", (lent,))
    return found


@pytest.fixture
def provider(machine):
    provider = ReachableProvider()
    provider.configure(SimpleNamespace(config={}))
    provider._cancellation.sleep = machine.sleep
    return provider


def test_a_machine_that_comes_up_is_looked_at(provider, machine):
    machine.failures = [REFUSED] * 5 + [NO_USER] * 3  # its user comes after its sshd
    made = provider.create(PROPS)
    assert made.id == "i-1"
    found = {key: made.outs[key] for key in ("cpus", "memoryMib", "gpus", "interface")}
    assert found == {"cpus": 30, "memoryMib": 204800, "gpus": 1, "interface": "eno1"}
    assert [command for command, _ in machine.commands[:-1]] == ["true"] * 9
    # The first boot has the rest of the time.
    command, seconds = machine.commands[-1]
    assert "cloud-init status --wait" in command
    assert seconds == 30 * 60 - 8


def test_a_first_boot_that_restarts_sshd_is_waited_for(provider, machine, monkeypatch):
    machine.restarts = [REFUSED] * 3
    looks = [REFUSED, FACTS]

    def look(_connection):
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(probe, "probe", look)
    assert provider.create(PROPS).id == "i-1"
    assert not machine.restarts
    assert machine.now == 1004


@pytest.mark.parametrize("failure", [OTHER, NO_KEY, OTHER_FAULT])
def test_what_waiting_does_not_mend_ends_the_wait_at_once(provider, machine, failure):  # F38
    machine.failures = [REFUSED, failure]
    with pytest.raises(type(failure)) as raised:
        provider.create(PROPS)
    assert raised.value is failure
    assert len(machine.commands) == 2


@pytest.mark.parametrize("fails", ["ssh", "boot"])
def test_a_rented_machine_of_no_use_ends_at_its_deadline(provider, machine, ended, fails):  # F49
    rented = {**PROPS, "host": {**PROPS["host"], "instanceId": "i-1"}}
    olds = provider.create(rented).outs
    machine.failures = [REFUSED] * 10_000 if fails == "ssh" else []
    machine.boot = CommandError("no network") if fails == "boot" else None
    with pytest.raises(SshError):
        provider.update("i-1", olds, rented)
    assert ended == []  # it may hold data
    with pytest.raises(SshError, match="It is terminated: run up with --refresh"):
        provider.create(rented)
    assert ended == ["i-1"]
    with pytest.raises(SshError, match="It keeps running: end it where it was started"):
        provider.create(PROPS)
    assert ended == ["i-1"]


def test_a_machine_that_cannot_be_ended_is_billed(provider, machine, ended, monkeypatch):  # F49
    def refused(_instances):
        raise pulumi.RunError("503")

    cloud = sources.CLOUDS[0]
    monkeypatch.setattr(
        sources, "CLOUDS", (replace(cloud, account=lambda _: SimpleNamespace(end=refused)),)
    )
    machine.boot = CommandError("no network")
    with pytest.raises(SshError, match=r"running, and is billed \(503\): end it with destroy"):
        provider.create({**PROPS, "host": {**PROPS["host"], "instanceId": "i-1"}})
    assert ended == []


@pytest.mark.parametrize("failure", [REFUSED, NO_USER])
def test_the_wait_ends_at_its_deadline(provider, machine, failure):  # F7
    machine.failures = [failure] * 10_000
    with pytest.raises(SshError, match=r"i-1 is on, .* within 30 min: trainyard@192.0.2.4"):
        provider.create(PROPS)
    assert machine.now == pytest.approx(1000 + 30 * 60, abs=2)


def test_long_waits_are_told_now_and_then(provider, machine, capsys):  # A16
    machine.failures = [REFUSED] * 100
    provider.create(PROPS)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert said[0].startswith("waiting for SSH of trainyard@192.0.2.4: 3")


def test_ctrl_c_ends_the_wait(machine):  # F11
    provider = ReachableProvider()
    provider.configure(SimpleNamespace(config={}))
    machine.failures = [REFUSED] * 10
    provider.cancel()
    with pytest.raises(CanceledError):
        provider.create(PROPS)
    assert len(machine.commands) == 1


def test_a_first_boot_that_failed_is_told(provider, machine):
    machine.boot = CommandError("a command ended with status 1. Its last lines:\n  no network")
    with pytest.raises(
        SshError,
        match=r"first boot of trainyard@192.0.2.4 \(i-1\) failed: (?s:.*)no netw.*\nIt keeps run",
    ):
        provider.create(PROPS)


@pytest.mark.parametrize(
    ("status", "log", "fine"),
    [
        (0, cloud_init.FINISHED, True),
        (2, cloud_init.FINISHED, True),  # something of the image's own failed
        (2, "adding ubuntu to the group docker failed with status 6", False),
        (0, None, False),
        (1, cloud_init.FINISHED, False),
    ],
)
def test_the_first_boot_is_done_when_our_own_log_says_so(tmp_path, put_program, status, log, fine):
    put_program(tmp_path, "cloud-init", f'[ "$2" = --wait ] && exit {status}; echo status: error')
    path = tmp_path / "boot.log"
    if log:
        path.write_text(f"{log}\n")
    done = ran.run(
        ["/bin/sh", "-c", reachable.FINISHED.replace(cloud_init.LOG, str(path))],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert (done.returncode == 0) == fine
    assert fine or done.stdout == "status: error\n" + (f"{log}\n" if log else "")


def test_a_machine_that_lacks_something_is_told(provider, machine):
    machine.facts = Facts(**{**vars(FACTS), "python3": "", "free_mib": 100})
    with pytest.raises(SshError, match=r"has no python3.*; .*100 MiB free"):
        provider.create(PROPS)


def test_another_address_of_the_machine_is_looked_at_again(provider):
    olds = provider.create(PROPS).outs
    news = {**PROPS, "host": PROPS["host"] | {"host": "192.0.2.5"}, "cpus": None}
    difference = provider.diff("i-1", olds, news)
    assert (difference.changes, difference.replaces) == (True, [])
    assert provider.update("i-1", olds, news).outs["cpus"] == 30
    assert provider.diff("i-1", olds, {**PROPS, "machine": "i-2"}).replaces == ["machine"]
    assert provider.diff("i-1", olds, dict(PROPS)).changes is False
