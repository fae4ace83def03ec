"""Faults of a host that is reached by SSH, on real sshds with real keys."""

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pulumi
import pytest
from pydantic import ValidationError

from infra import host_settings
from infra.hosts.fleet import FleetArgs
from infra.hosts.ssh.fleet import inspect
from infra.hosts.ssh.settings import SshHost
from tests.fakes.machines import Machines, NoMachinesError, root
from trainyard.access import ssh_run as ssh
from trainyard.access.ssh import Connection, LoginRefusedError, SshError, UnreachableError
from trainyard.access.ssh_run import CommandError

pytestmark = pytest.mark.integration
SECONDS = 30
PASSPHRASE = "a passphrase"
CANARY = "/tmp/canary"
HOME = "/home/" + "ubuntu"
INJECTIONS = (
    "$(touch /tmp/canary)",
    "`touch /tmp/canary`",
    "x; touch /tmp/canary",
    "-oX\ny",
    "ü'\"",
)


def key_pair(folder, name, passphrase=""):
    """A private key's file, and its public half."""
    path = folder / name
    command = ("ssh-keygen", "-q", "-t", "ed25519", "-C", "", "-N", passphrase, "-f", path)
    subprocess.run(command, check=True)
    return path, path.with_suffix(".pub").read_text().strip()


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Keys that log in: one as it is, one with a passphrase."""
    folder = tmp_path_factory.mktemp("keys")
    return key_pair(folder, "plain"), key_pair(folder, "locked", PASSPHRASE)


@pytest.fixture(scope="module")
def machines():
    try:
        with Machines() as machines, root.held(root.PACKAGES):
            yield machines
    except NoMachinesError as error:
        pytest.skip(str(error))


def booted(machines, keys, folder, name, **options):
    """The connection to a new machine, which has finished its first boot."""
    (plain, public), (_, locked) = keys
    host_key, host_public = key_pair(folder, f"{name}-host-key")
    private = "".join(f"    {line}\n" for line in host_key.read_text().splitlines())
    user_data = (
        f"#cloud-config\nssh_keys:\n  ed25519_private: |\n{private}"
        f"  ed25519_public: {host_public}\nssh_authorized_keys: ['{locked}']\n"
    )
    ip, _ = machines.boot(name, "", name, user_data, public, **options)
    machines.wait(name)
    connection = Connection(
        host=ip, user="ubuntu", host_key=host_public, private_key=ssh.read_key(plain)
    )
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            ssh.run(connection, "true", seconds=SECONDS)
        except SshError:
            if time.monotonic() > deadline:
                raise
        else:
            return connection


@pytest.fixture(scope="module")
def host(machines, keys, tmp_path_factory):
    return booted(machines, keys, tmp_path_factory.mktemp("host"), "host")


def as_setting(connection):
    return SshHost(
        address=connection.host,
        user=connection.user,
        host_key=connection.host_key,
        port=connection.port,
    )


def look(connections, key_file):
    """A preview with hosts."""
    hosts = [as_setting(connection) for connection in connections]
    args = FleetArgs(
        base=".trainyard/test",
        python_environment="",
        worker={},
        key_file=key_file,
        allowed_cidrs=(),
        keep_data=True,
        owner="",
    )
    return inspect(hosts, args)().machines


# F38
def test_a_host_whose_key_changes_is_refused_and_its_own_is_trusted_again(machines, keys, tmp_path):
    """Somebody takes the place of a machine at its address."""
    connection = booted(machines, keys, tmp_path, "replaced")
    restart = (
        "kill $(cat /run/sshd.pid); while [ -e /run/sshd.pid ]; do sleep 0.05; done; /usr/sbin/sshd"
    )
    own = "/etc/ssh/ssh_host_ed25519_key"
    machines.exec("replaced", f"mv {own} ~/own; ssh-keygen -q -t ed25519 -N '' -f {own}; {restart}")
    for use in (
        lambda: ssh.run(connection, f"touch {CANARY}", seconds=SECONDS),
        lambda: ssh.copy(connection, Path(__file__), CANARY, mode=0o600),
        lambda: ssh.forwarded(connection, "127.0.0.1", 22).__enter__(),
    ):
        with pytest.raises(SshError, match="another machine answers at that address"):
            use()
    assert not machines.path("replaced", CANARY).exists()
    machines.exec("replaced", f"mv ~/own {own}; {restart}")
    assert ssh.run(connection, "hostname", seconds=SECONDS).strip() == "replaced"


def test_a_wrong_user_is_told_from_a_host_that_does_not_answer(host):
    with pytest.raises(LoginRefusedError, match="is 'ubunto' the right user"):
        ssh.run(replace(host, user="ubunto"), "true", seconds=SECONDS)


def test_a_host_that_does_not_answer(host, machines, monkeypatch):
    monkeypatch.setattr(ssh, "CONNECT_SECONDS", 1.0)
    with pytest.raises(SshError, match=r"cannot be reached by SSH within 1 s .Connection refused"):
        ssh.run(replace(host, port=23), "true", seconds=SECONDS)
    machines.cut("host")
    try:
        with pytest.raises(UnreachableError, match="cannot be reached by SSH"):
            ssh.run(host, "true", seconds=SECONDS)
    finally:
        machines.heal("host")
    monkeypatch.undo()
    ssh.run(host, "true", seconds=SECONDS)


def test_a_command_that_does_not_end_is_given_up(host):
    started = time.monotonic()
    with pytest.raises(SshError, match="did not finish within 2 s"):
        ssh.run(host, "sleep 1000", seconds=2)
    assert time.monotonic() - started < SECONDS


def test_all_that_hosts_lack_is_in_one_message(host, machines, keys, tmp_path):
    """A host without Python, one with a full disk, one that lets nobody in."""
    bare = booted(machines, keys, tmp_path, "bare", without=("python3*",))
    full = booted(machines, keys, tmp_path, "full", disk_mib=200)
    wrong = replace(host, user="nobody-here")
    with pytest.raises(pulumi.RunError) as refused:
        look([bare, full, wrong], keys[0][0])
    faults = str(refused.value)
    assert f"ubuntu@{bare.host} has no python3" in faults
    assert f"ubuntu@{full.host} has" in faults
    assert f"MiB free in {HOME}" in faults
    assert f"nobody-here@{host.host} does not let this key in" in faults


def test_a_file_that_does_not_fit_leaves_nothing_in_its_place(machines, keys, tmp_path):
    full = booted(machines, keys, tmp_path, "no-room", disk_mib=32)
    large = tmp_path / "large"
    large.write_bytes(bytes(64 * 1024 * 1024))
    with pytest.raises(SshError, match=f"does not take {HOME}/large"):
        ssh.copy(full, large, f"{HOME}/large", mode=0o600)
    assert not machines.path("no-room", f"{HOME}/large").exists()


def test_a_command_that_fails_shows_its_last_lines(host):
    with pytest.raises(CommandError, match=r"status 3.*\n  on the way\n  and why"):
        ssh.run(host, "echo on the way; echo and why >&2; exit 3", seconds=SECONDS)


# F39
@pytest.mark.parametrize("text", INJECTIONS)
def test_names_are_never_run(host, machines, text, monkeypatch, tmp_path):
    """As an address, a user or a path: no setting takes it, and no shell would see it."""
    for field in ("address", "user"):
        with pytest.raises(ValidationError, match=field):
            SshHost.model_validate(as_setting(host).set_fields() | {field: text})
    assert not host_settings.PLAIN_PATH.fullmatch(text)
    monkeypatch.chdir(tmp_path)
    for wrong in (replace(host, host=text), replace(host, user=text)):
        with pytest.raises((SshError, ValueError)):
            ssh.run(wrong, "true", seconds=SECONDS)
    file = tmp_path / "file"
    file.write_text("content")
    path = f"{HOME}/{text.replace('/', '_')}"
    ssh.copy(host, file, path, mode=0o600)
    assert machines.path("host", path).read_text() == "content"
    assert not machines.path("host", CANARY).exists()
    assert not Path(CANARY).exists()
