"""The engine's command provider, with a real SSH server on loopback."""

import os
import shlex
import signal
from pathlib import Path

import psutil
import pytest

from tests.fakes.sshd import Sshd
from tests.ssh_keys import new_key
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SECONDS = 20  # for an awaited event


def _noting(stack, name="notes", **props):
    """A command that logs its work."""
    path = stack.folder / name
    return {key: f"echo {word} >> {path}; echo {word}-said" for key, word in props.items()}


def test_a_command_is_planned_created_updated_replaced_and_deleted(commands):
    def shape(*triggers, **words):
        return {"c": {**_noting(commands, **words), "triggers": list(triggers)}}

    commands.declare(**shape(1, create="made", delete="gone"))
    assert "c create planned" in commands.done("preview")
    assert commands.lines("notes") == []
    commands.up()
    assert commands.lines("notes") == ["made"]
    assert commands.resource("c")["outputs"]["stdout"] == "made-said"
    assert commands.resource("c")["id"].startswith("c")
    before = commands.resource("c")["id"]

    commands.up("--expect-no-changes")
    commands.up("--refresh", "--expect-no-changes")
    assert commands.lines("notes") == ["made"]

    # The create command runs again, even if only the delete command differs.
    commands.up(**shape(1, create="remade", delete="gone"))
    commands.up(**shape(1, create="remade", delete="left"))
    assert commands.lines("notes") == ["made", "remade", "remade"]
    assert commands.resource("c")["id"] == before

    commands.up(**shape(2, create="remade", delete="left"))
    assert commands.lines("notes")[3:] == ["remade", "left"]
    assert commands.resource("c")["id"] != before

    commands.done("destroy", "--yes")
    assert commands.lines("notes")[5:] == ["left"]
    assert commands.resources() == []


def test_what_a_command_prints_is_shown_and_kept(commands):
    output = commands.up(c={"create": "echo to-out; printf 'to-\\033[2Jerr' >&2"})
    shown = {line for line in output.splitlines() if line.startswith("info: ")}
    assert shown == {"info: c: to-out", "info: c: to-err"}
    assert commands.resource("c")["outputs"]["stdout"] == "to-out"
    assert commands.resource("c")["outputs"]["stderr"] == "to-\033[2Jerr"


def test_a_line_is_shown_when_it_is_printed(commands):
    gate = commands.folder / "gate"
    command = f"echo begun; while ! test -e {gate}; do sleep 0.02; done; echo ended"
    commands.declare(c={"create": command})
    process = commands.start("up", "--yes")
    for line in process.stdout:
        if "begun" in line:
            break
    assert process.poll() is None
    gate.touch()
    assert "ended" in process.communicate(timeout=20)[0]


def test_a_secret_is_in_no_error(commands):  # F35
    command = "echo token canary-token-value >&2; echo the reason >&2; exit 3"
    given = {"triggers": ["canary-token-value"], "secrets": ["triggers"]}
    commands.up(c={"create": "true", **given})
    output = commands.fails(c={"create": "true", **given}, d={"create": command, **given})
    assert "ended with status 3" in output
    assert "the reason" in output
    assert "token [secret]" in output
    assert "canary" not in output
    assert "PRIVATE KEY" not in output
    assert "canary" not in commands.state_file.read_text()


def test_what_a_command_with_a_secret_prints_is_a_secret(commands):  # F35
    commands.up(
        c={"create": "echo terces-yranac | rev", "secrets": ["create"]},
        d={"create": "echo in-the-clear"},
    )
    assert "canary-secret" not in commands.state_file.read_text()
    assert commands.resource("d")["outputs"]["stdout"] == "in-the-clear"
    assert "[secret]" in commands.done("output", "cOut")
    assert "canary-secret" in commands.done("output", "cOut", "--show-secrets")


def test_a_failed_command_is_not_recorded(commands):
    output = commands.fails(c={"create": "kill -9 $$"})
    assert "ended with signal SIGKILL" in output
    assert not [e for e in commands.resources() if e["urn"].endswith("::c")]
    assert "  seen" in commands.fails(c={"create": "echo seen; false"})
    commands.up(c={"create": "true"})


def test_an_unknown_or_other_host_key_is_refused(commands, tmp_path):  # F38
    canary = commands.folder / "canary"
    command = {"create": f"touch {canary}"}
    given = commands.connection.pop("host_key")
    assert "connection: hostKey of 127.0.0.1 is missing" in commands.fails(c=command)
    commands.connection["host_key"] = Sshd.new_key(tmp_path / "other")
    output = commands.fails(c=command)
    assert "does not show the host key SHA256:" in output
    assert "attempt 1" not in output
    # A key of a kind that the server does not have.
    commands.connection["host_key"] = Sshd.new_key(tmp_path / "rsa", kind="rsa")
    assert "does not show the host key SHA256:" in commands.fails(c=command)
    commands.connection["host_key"] = "ssh-ed25519"
    assert "is not a public key" in commands.fails(c=command)
    assert not canary.exists()
    commands.connection["host_key"] = given
    commands.up(c=command)
    assert canary.exists()


def test_a_state_without_a_host_key_is_not_trusted_in_a_destroy(commands, tmp_path):  # F38
    commands.up(c={"create": "true", **_noting(commands, delete="gone")})
    settings = commands.state_file.read_text()
    assert "hostKey" not in settings  # it is in the secret
    commands.connection["host_key"] = Sshd.new_key(tmp_path / "other")
    commands.server.stop()
    Sshd.new_key(commands.server._host_key_file)
    commands.server.start()
    assert "does not show the host key" in commands.refused("destroy", "--yes")
    assert commands.lines("notes") == []


def test_an_encrypted_key_is_refused(commands, tmp_path):
    locked = new_key(tmp_path / "locked", "correct horse", "-m", "PKCS8", "-t", "rsa")
    commands.connection["private_key"] = locked.read_text()
    output = commands.fails(c={"create": "true"})
    assert "cannot be used (Passphrase must be specified" in output
    assert "without a passphrase; or leave it out and ssh-add it" in output


def test_a_command_comes_through_untouched(commands):
    value = "'\"$(touch x);`id`\nü"
    commands.up(c={"create": f"printf %s {shlex.quote(value)}"})
    assert commands.resource("c")["outputs"]["stdout"] == value


def test_an_unreachable_host_is_given_up_after_the_limit(commands):
    commands.server.stop()
    output = commands.fails(c={"create": "true", "connection": {"dial_error_limit": 2}})
    assert "attempt 1 of 3" in output
    assert "cannot be reached by SSH after 3 attempts" in output


def test_a_host_that_comes_up_is_waited_for(commands):
    commands.server.stop()
    commands.declare(c={"create": "true", "connection": {"dial_error_limit": 30}})
    process = commands.start("up", "--yes")
    for line in process.stdout:
        if "attempt 3" in line:
            break
    commands.server.start()
    assert process.wait(timeout=30) == 0


@pytest.fixture
def sleeper(commands):
    """A file for the pid of a process that a command starts and waits for."""
    path = commands.folder / "pid"
    yield path
    if path.exists() and _runs(path):
        os.kill(int(path.read_text()), signal.SIGKILL)


def _sleeping(path, **more):
    command = f"sleep 300 & echo $! > {path}.new; mv {path}.new {path}; wait"
    return {"create": command, **more}


def _runs(path):
    try:
        return psutil.Process(int(path.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_ctrl_c_ends_a_running_command_and_what_it_started(commands, sleeper):  # F11
    commands.declare(c=_sleeping(sleeper))
    process = commands.start("up", "--yes")
    wait_for("the command's start", sleeper.exists, SECONDS)
    os.kill(process.pid, signal.SIGINT)
    output = process.communicate(timeout=20)[0]  # and not after the 300 s of the command
    assert process.returncode == 1
    assert "canceled; its effects so far stay" in output
    wait_for("the command's end", lambda: not _runs(sleeper), SECONDS)
    assert [e for e in commands.resources() if e["urn"].endswith("::c")] == []
    commands.up(c={"create": "true"})


def test_custom_timeouts_bound_a_command(commands, sleeper):
    output = commands.fails(c=_sleeping(sleeper, timeouts={"create": "2s"}))
    assert "not done within 2 s" in output
    wait_for("the command's end", lambda: not _runs(sleeper), SECONDS)


def test_a_connection_that_is_cut_is_a_failure(commands, sleeper):
    commands.declare(c=_sleeping(sleeper))
    process = commands.start("up", "--yes")
    wait_for("the command's start", sleeper.exists, SECONDS)
    commands.server.cut()
    output = process.communicate(timeout=20)[0]
    assert process.returncode == 1
    assert "the connection" in output


def test_a_file_is_copied(commands):
    there = commands.folder / "there"
    source = commands.project / "source"
    source.write_text("1")
    copy = {"kind": "copy", "file": "source", "remote_path": str(there)}
    commands.up(c=copy)
    assert there.read_text() == "1"
    commands.up("--refresh", "--expect-no-changes")

    # The content counts, not its place.
    (commands.project / "elsewhere").write_text("1")
    elsewhere = copy | {"file": str(commands.project / "elsewhere")}
    commands.up("--expect-no-changes", c=elsewhere)
    source.write_text("2")
    assert "update done" in commands.up(c=copy)
    assert there.read_text() == "2"

    # Into an existing folder, under its own name.
    (commands.folder / "folder").mkdir()
    commands.up(c=copy | {"remote_path": str(commands.folder / "folder")})
    assert (commands.folder / "folder" / "source").read_text() == "2"
    commands.done("destroy", "--yes")
    assert there.exists()


def test_a_copy_that_cannot_be_made_says_why(commands):
    copy = {"kind": "copy", "file": "nothing", "remote_path": "/proc/nothing/x"}
    assert "cannot be read: No such file" in commands.fails(c=copy)
    (commands.project / "nothing").touch()
    assert "does not take /proc/nothing/x" in commands.fails(c=copy)
    assert Path("/proc").is_dir()
