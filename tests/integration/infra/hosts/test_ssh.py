"""Another machine by SSH: a real sshd on loopback, with keys of its own."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from infra.machines.executable import ExecutableProvider
from infra.machines.process import DaemonProvider, ProgramProvider
from tests import ran, web
from tests.fakes.sshd import Sshd
from tests.web_program import web_program
from trainyard.access import ssh_run as ssh
from trainyard.access.ssh import (
    HostKeyError,
    LoginRefusedError,
    NoKeyError,
    SshError,
    UnreachableError,
)
from trainyard.access.ssh_run import CommandError

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[4]
SECONDS = 30
PASSPHRASE = "a passphrase"
ODD = "a b'$(touch canary)\";touch canary;`touch canary`"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    try:
        made = Sshd(tmp_path_factory.mktemp("sshd"))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with made:
        yield made


@pytest.fixture
def host(sshd):
    """The connection to a machine that lets this user in."""
    return sshd.connection()


@pytest.fixture(autouse=True)
def nothing_left():
    """No call leaves a thread, and with it an event loop and a connection, behind."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while left := [thread for thread in threading.enumerate() if thread not in before]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def closed(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0


# Commands


def test_a_command_reads_what_it_is_given_and_its_output_comes_back(host):
    assert ssh.run(host, "cat; echo there >&2", stdin="hello\n", seconds=SECONDS) == "hello\n"
    large = "x" * 5_000_000
    assert ssh.run(host, "cat", stdin=large, seconds=SECONDS) == large
    assert ssh.run(host, "true", stdin=large, seconds=SECONDS) == ""  # it need not read


@pytest.mark.parametrize("end", ["", " >&2"])
def test_what_a_command_prints_is_bounded(host, end):  # F39
    with pytest.raises(SshError, match="prints more than 65,536 characters"):
        ssh.run(host, f"cat /dev/zero{end}", seconds=SECONDS, most=65_536)
    assert len(ssh.run(host, "head -c 65536 /dev/zero", seconds=SECONDS, most=65_536)) == 65_536


def test_many_at_once_are_all_let_in(host):
    # With so many logins at once a usual sshd hangs up on some.
    with ThreadPoolExecutor(40) as pool:
        said = pool.map(lambda _: ssh.run(host, "echo in", seconds=SECONDS), range(40))
        assert [*said] == ["in\n"] * 40


def test_what_a_command_reads_is_seen_by_nobody(host, tmp_path, wait_for):  # F35
    secret = "canary-of-the-standard-input"
    got, go = tmp_path / "got", tmp_path / "go"
    command = f"cat > {got}; while ! [ -e {go} ]; do sleep 0.02; done; echo no >&2; exit 3"
    raised = []

    def call():
        try:
            ssh.run(host, command, stdin=secret, seconds=SECONDS)
        except CommandError as error:
            raised.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    try:
        wait_for(lambda: got.exists() and got.read_text() == secret)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                seen = f"{process.cmdline()} {process.environ()}"
                assert secret not in seen, process
    finally:
        go.touch()
        thread.join()
    assert "status 3" in raised[0]
    assert secret not in raised[0]


def test_a_command_that_fails_shows_its_status_and_last_lines(host):
    with pytest.raises(CommandError) as raised:
        ssh.run(host, "seq 1 30; echo why >&2; exit 7", seconds=SECONDS)
    first, *lines = str(raised.value).splitlines()
    assert f"{host.name} ended with status 7" in first
    assert lines == [*(f"  {i}" for i in range(12, 31)), "  why"]
    with pytest.raises(CommandError, match=r"signal KILL\. Its last lines:\n  \(nothing\)"):
        ssh.run(host, "kill -9 $$", seconds=SECONDS)


def test_output_that_is_no_text_is_shown_as_far_as_it_is(host):
    assert ssh.run(host, r"printf 'a\377b'", seconds=SECONDS) == "a\ufffdb"
    with pytest.raises(CommandError, match=r"status 1(?s:.*)a\ufffdb"):
        ssh.run(host, r"printf 'a\377b'; exit 1", seconds=SECONDS)


def test_a_command_has_a_bound(host):
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"did not finish within 0.5 s"):
        ssh.run(host, "sleep 60", seconds=0.5)
    assert time.monotonic() - started < 10


def test_a_machine_that_hangs_is_left_alone(host, sshd, tmp_path, wait_for):  # F26
    started = tmp_path / "started"
    raised = []

    def call():
        try:
            command = f"touch {started}; sleep 60; cat"
            ssh.run(host, command, stdin="x" * 10_000_000, seconds=2)
        except SshError as error:
            raised.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    wait_for(started.exists)
    hanging = sshd.connections()
    for process in hanging:
        process.suspend()
    try:
        thread.join(20)
        assert "did not finish within 2 s" in raised[0]
    finally:
        for process in hanging:
            with contextlib.suppress(psutil.Error):
                process.kill()


def test_a_connection_that_breaks_is_no_failure_of_the_command(host, sshd, tmp_path, wait_for):
    started = tmp_path / "started"
    cut = threading.Thread(target=lambda: (wait_for(started.exists), sshd.cut()))
    cut.start()
    # Not a CommandError: the same may work in a minute.
    with pytest.raises(UnreachableError, match="broke before the command there ended"):
        ssh.run(host, f"touch {started}; sleep 60", seconds=SECONDS)
    cut.join()


# Copies


def test_a_copy_is_whole_or_not_there(host, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    target.write_text("old")
    source.write_bytes(os.urandom(20_000_000))
    seen = set()
    done = threading.Event()

    def look():
        while not done.is_set():
            seen.add(target.stat().st_size)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        ssh.copy(host, source, str(target), mode=0o700)
    finally:
        done.set()
        thread.join()
    assert target.read_bytes() == source.read_bytes()
    assert seen <= {3, 20_000_000}
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_a_copy_that_cannot_be_put_there_leaves_nothing(host, tmp_path):  # F16
    source = tmp_path / "source"
    source.write_text("x")
    with pytest.raises(SshError, match=r"does not take .*/none/target: No such file"):
        ssh.copy(host, source, str(tmp_path / "none" / "target"), mode=0o600)
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(SshError, match="does not take"):
        ssh.copy(host, source, str(tmp_path / "folder"), mode=0o600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "source"]


def test_a_server_without_sftp_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with (
        Sshd(tmp_path, "ForceCommand echo no shell for you") as server,
        pytest.raises(SshError, match="does not take /tmp/x: "),
    ):
        ssh.copy(server.connection(), tmp_path / "file", "/tmp/x", mode=0o600)


# Forwarded ports


@pytest.fixture
def site():
    """A web server that only its machine reaches; host and port."""
    with web.serving(lambda _: (200, b"found")) as server:
        yield server.server_address


def test_a_forwarded_port_leads_there_and_is_closed_afterwards(host, site):
    with ssh.forwarded(host, *site) as first, ssh.forwarded(host, *site) as second:
        for endpoint in (first, second, first):
            assert endpoint.startswith("127.0.0.1:")
            with urllib.request.urlopen(f"http://{endpoint}/", timeout=10) as answer:
                assert answer.read() == b"found"
    ports = [int(endpoint.rpartition(":")[2]) for endpoint in (first, second)]
    assert len(set(ports)) == 2
    assert all(closed(port) for port in ports)


def test_a_forwarded_port_is_closed_after_an_error_too(host, site):
    with pytest.raises(ZeroDivisionError), ssh.forwarded(host, *site) as endpoint:
        raise ZeroDivisionError
    assert closed(int(endpoint.rpartition(":")[2]))


def test_a_port_that_nobody_opens_there_is_refused_when_it_is_used(host, free_port):
    refused = (ConnectionError, urllib.error.URLError)
    with ssh.forwarded(host, "127.0.0.1", free_port()) as endpoint, pytest.raises(refused):
        urllib.request.urlopen(f"http://{endpoint}/", timeout=10)


def test_no_port_is_opened_to_a_machine_that_is_not_reached(host):
    with pytest.raises(SshError, match="cannot be reached by SSH"):
        ssh.forwarded(replace(host, port=1), "127.0.0.1", 80).__enter__()


# Who is trusted


def test_another_host_key_is_refused_with_its_fingerprint(host, tmp_path):  # F38
    other = Sshd.new_key(tmp_path / "other")
    shown = ran.output(["ssh-keygen", "-l", "-f", tmp_path / "other.pub"]).split()[1]
    target, wrong = tmp_path / "target", replace(host, host_key=other)
    for use in (
        lambda: ssh.run(wrong, f"touch {target}", seconds=SECONDS),
        lambda: ssh.copy(wrong, Path(__file__), str(target), mode=0o600),
        lambda: ssh.forwarded(wrong, "127.0.0.1", 22).__enter__(),
    ):
        with pytest.raises(HostKeyError, match="another machine answers at that addr") as raised:
            use()
        assert shown in str(raised.value)  # of the one that was expected, to compare with
    assert not target.exists()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_one_of_several_host_keys_is_pinned(tmp_path, kind):  # F38
    for name in ("rsa", "ecdsa"):
        Sshd.new_key(tmp_path / name, kind=name)
    with Sshd(tmp_path, f"HostKey {tmp_path}/rsa", f"HostKey {tmp_path}/ecdsa") as server:
        keys = {
            "rsa": (tmp_path / "rsa.pub").read_text().strip(),
            "ecdsa": (tmp_path / "ecdsa.pub").read_text().strip(),
            "ed25519": server.host_key,
        }
        connection = server.connection(host_key=keys[kind])
        assert ssh.run(connection, "echo in", seconds=SECONDS) == "in\n"


def test_a_host_key_that_is_none_is_told(host):
    with pytest.raises(SshError, match=r"is not one: 'ssh-ed25519 AAAA'.*ssh-keyscan 127"):
        ssh.run(replace(host, host_key="ssh-ed25519 AAAA"), "true", seconds=SECONDS)


def test_a_key_or_user_that_is_not_let_in_is_told(host, tmp_path):
    Sshd.new_key(tmp_path / "stranger")
    stranger = replace(host, private_key=ssh.read_key(tmp_path / "stranger"))
    with pytest.raises(
        LoginRefusedError, match=r"does not let this key in.*authorized_keys"
    ) as raised:
        ssh.run(stranger, "true", seconds=SECONDS)
    with pytest.raises(SshError, match="is 'somebody' the right user"):
        ssh.run(replace(host, user="somebody"), "true", seconds=SECONDS)
    assert "PRIVATE" not in str(raised.value)


@pytest.mark.parametrize("user", [ODD, "root\nProxyCommand touch canary", "-oProxyCommand=x"])
def test_odd_names_reach_no_shell(host, tmp_path, monkeypatch, user):  # F39
    monkeypatch.chdir(tmp_path)
    # A line break is refused by the library, and by the settings before that.
    for odd in (replace(host, user=user), replace(host, host=user)):
        with pytest.raises((SshError, ValueError)):
            ssh.run(odd, "true", seconds=SECONDS)
    assert list(tmp_path.iterdir()) == []


def test_settings_of_the_user_lead_nowhere_else(host, tmp_path, monkeypatch):
    folder = tmp_path / ".ssh"
    folder.mkdir(mode=0o700)
    config = f"Host *\n  Hostname 192.0.2.1\n  ProxyCommand touch {tmp_path}/canary\n"
    (folder / "config").write_text(config)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ssh.run(host, "echo in", seconds=SECONDS) == "in\n"
    assert not (tmp_path / "canary").exists()


# The SSH agent


@pytest.fixture
def agent(tmp_path, monkeypatch, wait_for):
    """An SSH agent without a key; its socket is in the environment."""
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(path.exists)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
            yield process
        finally:
            process.terminate()


def _add(key, tmp_path):
    ask = tmp_path / "ask"
    ask.write_text(f"#!/bin/sh\necho {PASSPHRASE}\n")
    ask.chmod(0o700)
    environment = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh-add", "-q", key], check=True, env=environment)


def test_a_key_with_a_passphrase_is_the_agents(sshd, host, agent, tmp_path):  # F38
    key = tmp_path / "locked"
    allowed = sshd.authorized_keys.read_text()
    public = Sshd.new_key(key, PASSPHRASE)
    sshd.authorized_keys.write_text(f"{allowed}{public}\n")
    try:
        by_agent = replace(host, private_key=ssh.read_key(key))
        assert by_agent.private_key == ""
        assert not ssh.agent_holds(public)
        # Nothing that waiting for the machine could mend.
        with pytest.raises(NoKeyError, match=f"log in to {host.name} with: the SSH agent has none"):
            ssh.run(by_agent, "true", seconds=SECONDS)
        _add(key, tmp_path)
        assert ssh.agent_holds(public)
        assert ssh.run(by_agent, "echo in", seconds=SECONDS) == "in\n"
    finally:
        sshd.authorized_keys.write_text(allowed)
    with pytest.raises(LoginRefusedError, match="does not let any key of the SSH agent in: is"):
        ssh.run(by_agent, "true", seconds=SECONDS)


def test_a_key_with_a_passphrase_and_no_agent_is_told(tmp_path, monkeypatch):  # F38
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    for kind in ("ed25519", "rsa"):
        Sshd.new_key(tmp_path / kind, PASSPHRASE, kind)
        with pytest.raises(SshError, match=f"has a passphrase and no SSH agent.*ssh-add .*{kind}"):
            ssh.read_key(tmp_path / kind)


@pytest.mark.parametrize("path", ["", "/nonexistent/agent"])
def test_without_an_agent_no_other_key_is_tried(sshd, host, tmp_path, monkeypatch, path):  # F38
    """Nor the one of the user's home: a `pulumi up` elsewhere would have another one."""
    folder = tmp_path / ".ssh"
    folder.mkdir(mode=0o700)
    (folder / "id_ed25519").write_text(sshd.key_file.read_text())
    (folder / "id_ed25519").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSH_AUTH_SOCK", path)
    with pytest.raises(NoKeyError, match=r"no SSH agent answers\. Set sshKeyFile, or"):
        ssh.run(replace(host, private_key=""), "true", seconds=SECONDS)
    assert not ssh.agent_holds(sshd.host_key)


def test_the_agent_is_not_asked_where_there_is_a_key(host, agent):
    agent.kill()
    agent.wait()
    assert ssh.run(host, "echo in", seconds=SECONDS) == "in\n"


# Work of the process runtime and others there


@pytest.fixture
def there(host, short_folder):
    """Properties of a resource on that machine: this checkout is its agent."""
    checkout = short_folder / ODD
    checkout.symlink_to(ROOT)
    return {
        "host": {
            "host": host.host,
            "port": float(host.port),
            "user": host.user,
            "hostKey": host.host_key,
            "privateKey": host.private_key,
            "agent": str(checkout),
            "python": sys.executable,
        },
        "machine": host.name,
    }


MARK = {"id": "0123abcd", "project": "p", "stack": "s", "by": "ada@here"}


@pytest.fixture
def daemon(there, short_folder):
    props = {"folder": str(short_folder / "s"), "identifier": "test", "ports": {}, **there}
    props["mark"] = MARK
    made = DaemonProvider().create(props)
    assert made.outs == {**props, "healthy": True}
    yield props
    DaemonProvider().delete(made.id, props)
    assert not (short_folder / "s").exists()


@pytest.fixture
def program(daemon, there, free_port):
    secrets = {"token": "canary"}
    return web_program(daemon["folder"], free_port(), MARK, secrets=secrets, **there)


def test_a_program_lives_on_the_other_machine(program, daemon, started_below):  # F39
    props = program
    made = ProgramProvider().create(props)
    assert made.outs == {**props, "healthy": True}
    folder = Path(daemon["folder"])
    assert (folder / "web" / "files" / "token").read_text() == "canary"
    # It outlives the connection that started it.
    assert urllib.request.urlopen(props["health"][0], timeout=10).status == 200
    assert len(started_below(folder)) == 2  # supervisord and the program
    assert ProgramProvider().read(made.id, made.outs).outs == made.outs
    news = {**made.outs, "environment": {"A": "b"}}
    assert ProgramProvider().update(made.id, made.outs, news).outs == news
    assert urllib.request.urlopen(props["health"][0], timeout=10).status == 200
    found = ProgramProvider().find(props)
    assert (found.id, found.outs["healthy"]) == ("web", False)
    ProgramProvider().delete(made.id, news)
    assert ProgramProvider().read(made.id, news).id == ""
    assert ProgramProvider().find(props) is None
    assert len(started_below(folder)) == 1
    assert not (Path.home() / "canary").exists()


def test_a_program_of_this_machine_is_copied_there(there, short_folder):  # F39
    source = short_folder / "minio-1"
    source.write_text("#!/bin/sh\necho started\n")
    props = {"source": str(source), "path": str(short_folder / ODD[:5] / "bin" / "minio"), **there}
    made = ExecutableProvider().create(props)
    done = subprocess.run([made.id], capture_output=True, text=True, check=True)
    assert done.stdout == "started\n"
    assert ExecutableProvider().read(made.id, props).id == made.id
    ExecutableProvider().delete(made.id, props)
    assert ExecutableProvider().read(made.id, props).id == ""
