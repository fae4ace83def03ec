"""The engine's command provider: commands here, and on a real SSH server on loopback."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

SECONDS = 20  # in which what is waited for comes
KINDS = pytest.mark.parametrize("kind", ["local", "remote"])


def _noting(stack, name="notes", **props):
    """A command that notes what it does."""
    path = stack.folder / name
    return {key: f"echo {word} >> {path}; echo {word}-said" for key, word in props.items()}


@KINDS
def test_a_command_is_created_updated_replaced_and_deleted(commands, kind):
    def shape(*triggers, **words):
        return {"c": {"kind": kind, **_noting(commands, **words), "triggers": list(triggers)}}

    commands.up(**shape(1, create="made", delete="gone"))
    assert commands.lines("notes") == ["made"]
    assert commands.resource("c")["outputs"]["stdout"] == "made-said"
    assert commands.resource("c")["id"].startswith("c")
    before = commands.resource("c")["id"]

    commands.up("--expect-no-changes")
    commands.up("--refresh", "--expect-no-changes")
    assert commands.lines("notes") == ["made"]

    # Without an update command the create command runs again.
    commands.up(**shape(1, create="remade", delete="gone"))
    commands.up(**shape(1, create="remade", update="changed", delete="left"))
    assert commands.lines("notes") == ["made", "remade", "changed"]
    assert commands.resource("c")["id"] == before

    commands.up(**shape(2, create="remade", update="changed", delete="left"))
    assert commands.lines("notes")[3:] == ["remade", "left"]
    assert commands.resource("c")["id"] != before

    commands.done("destroy", "--yes")
    assert commands.lines("notes")[5:] == ["left"]
    assert commands.resources() == []


@KINDS
def test_a_preview_runs_nothing(commands, kind):
    commands.declare(c={"kind": kind, **_noting(commands, create="made")})
    assert "c create planned" in commands.done("preview")
    assert commands.lines("notes") == []


@KINDS
def test_what_a_command_prints_is_shown_as_logging_says(commands, kind):
    both = {"kind": kind, "create": "echo to-out; printf 'to-err\\033[2J\\a'' >&2"}
    both["create"] = "echo to-out; printf 'to-\\033[2Jerr' >&2"
    output = commands.up(
        all=both,
        out={**both, "logging": "stdout"},
        err={**both, "logging": "stderr"},
        none={**both, "logging": "none"},
    )
    shown = {line for line in output.splitlines() if line.startswith("info: ")}
    assert shown == {
        "info: all: to-out",
        "info: all: to-err",
        "info: out: to-out",
        "info: err: to-err",
    }
    for name in ("all", "none"):
        assert commands.resource(name)["outputs"]["stdout"] == "to-out"
        assert "err" in commands.resource(name)["outputs"]["stderr"]


@KINDS
def test_a_line_is_shown_when_it_is_printed(commands, kind):
    gate = commands.folder / "gate"
    command = f"echo begun; while ! test -e {gate}; do sleep 0.02; done; echo ended"
    commands.declare(c={"kind": kind, "create": command})
    process = commands.start("up", "--yes")
    for line in process.stdout:
        if "begun" in line:
            break
    assert process.poll() is None
    gate.touch()
    assert "ended" in process.communicate(timeout=20)[0]


@KINDS
def test_the_previous_output_is_in_the_environment(commands, kind):
    seen = commands.folder / "seen"
    props = {
        "kind": kind,
        "create": 'echo "it\'s 1"; echo 2 >&2',
        "delete": f'echo "$PULUMI_COMMAND_STDOUT" > {seen}',
    }
    commands.up(
        c=props, d={**props, "delete": f"{props['delete']}.d", "add_previous_output_in_env": False}
    )
    commands.done("destroy", "--yes")
    assert commands.lines("seen") == ["it's 1"]
    assert commands.lines("seen.d") == [""]


def test_environment_folder_and_interpreter_of_a_local_command(commands):
    commands.up(
        c={
            "create": "import os; print(os.environ['KEY'], os.getcwd())",
            "interpreter": ["python3", "-c"],
            "environment": {"KEY": "a b"},
            "dir": str(commands.folder),
        }
    )
    assert commands.resource("c")["outputs"]["stdout"] == f"a b {commands.folder}"
    assert "cannot be run" in commands.fails(d={"create": "true", "dir": "/nonexistent"})


def test_a_server_that_takes_no_variable_is_said_so(commands):
    taken = {
        "kind": "remote",
        "create": 'echo "$ACCEPTED_KEY"',
        "environment": {"ACCEPTED_KEY": "a\nb"},
    }
    commands.up(c=taken)
    assert commands.resource("c")["outputs"]["stdout"] == "a\nb"
    output = commands.fails(d={**taken, "environment": {"OTHER": "x"}})
    assert "does not accept the variable OTHER: add it to AcceptEnv" in output


@KINDS
def test_stdin_is_handed_over_whole_and_in_no_error(commands, kind):  # F35
    text = "canary-first-line\n" + "x" * 300_000 + "\ncanary-last-line"
    commands.up(c={"kind": kind, "create": "wc -c", "stdin": text, "secrets": ["stdin"]})
    props = {"kind": kind, "stdin": text, "environment": {"ACCEPTED_TOKEN": "canary-token-value"}}
    command = "cat >&2; echo token $ACCEPTED_TOKEN >&2; echo the reason >&2; exit 3"
    output = commands.fails(
        c={"create": "true"},
        d={**props, "create": command, "secrets": ["stdin", "environment"]},
    )
    assert "ended with status 3" in output
    assert "the reason" in output
    assert "token [secret]" in output
    assert "canary" not in output
    assert "PRIVATE KEY" not in output
    everything = commands.state_file.read_text()
    assert "canary" not in everything
    # A command that is not asked to read may end before it was given all.
    commands.up(e={"kind": kind, "create": "true", "stdin": text})


@KINDS
def test_what_a_command_with_a_secret_prints_is_a_secret(commands, kind):  # F35
    commands.up(
        c={"kind": kind, "create": "rev", "stdin": "terces-yranac", "secrets": ["stdin"]},
        d={"kind": kind, "create": "echo in-the-clear"},
    )
    assert "canary-secret" not in commands.state_file.read_text()
    assert commands.resource("d")["outputs"]["stdout"] == "in-the-clear"
    assert "[secret]" in commands.done("output", "cOut")
    assert "canary-secret" in commands.done("output", "cOut", "--show-secrets")


@KINDS
def test_a_failed_command_is_not_recorded(commands, kind):
    output = commands.fails(c={"kind": kind, "create": "kill -9 $$"})
    assert "ended with signal SIGKILL" in output
    assert not [e for e in commands.resources() if e["urn"].endswith("::c")]
    output = commands.fails(
        c={"kind": kind, "create": "echo hidden; echo seen >&2; false", "logging": "none"}
    )
    assert "hidden" not in output
    assert "seen" in output
    commands.up(c={"kind": kind, "create": "true"})


def test_an_unknown_or_other_host_key_is_refused(commands, tmp_path):  # F38
    canary = commands.folder / "canary"
    command = {"kind": "remote", "create": f"touch {canary}"}
    given = commands.connection.pop("host_key")
    assert "connection.hostKey of 127.0.0.1 is missing" in commands.fails(c=command)
    commands.connection["host_key"] = commands.server.key("other")
    begun = time.monotonic()
    output = commands.fails(c=command)
    assert "does not show the host key SHA256:" in output
    assert "attempt 1" not in output
    assert time.monotonic() - begun < 10
    # One of another kind than any that the server has.
    commands.connection["host_key"] = commands.server.key("rsa", "-t", "rsa")
    assert "does not show the host key SHA256:" in commands.fails(c=command)
    commands.connection["host_key"] = "ssh-ed25519"
    assert "is no public key" in commands.fails(c=command)
    assert not canary.exists()
    commands.connection["host_key"] = given
    commands.up(c=command)
    assert canary.exists()


def test_a_state_without_a_host_key_is_not_trusted_in_a_destroy(commands):  # F38
    commands.up(c={"kind": "remote", "create": "true", **_noting(commands, delete="gone")})
    settings = commands.state_file.read_text()
    assert "hostKey" not in settings  # it is in the secret
    commands.connection["host_key"] = commands.server.key("other")
    commands.server.end()
    commands.server.host_key = commands.server.key("host2")
    config = commands.server.folder / "config"
    config.write_text(
        config.read_text().replace(
            f"{commands.server.folder}/host\n", f"{commands.server.folder}/host2\n"
        )
    )
    commands.server.start()
    code, output = commands.run("destroy", "--yes")
    assert code == 1
    assert "does not show the host key" in output
    assert commands.lines("notes") == []


def test_an_encrypted_key_needs_its_passphrase(commands):
    key = commands.server.folder / "locked"
    public = commands.server.key("locked", "-N", "correct horse", "-m", "PKCS8", "-t", "rsa")
    (commands.server.folder / "authorized").write_text(public)
    commands.connection["private_key"] = key.read_text()
    output = commands.fails(c={"kind": "remote", "create": "true"})
    assert "cannot be used (Passphrase must be specified" in output
    assert "ssh-add" in output
    commands.connection["private_key_password"] = "wrong horse"
    assert "cannot be used" in commands.fails(c={"kind": "remote", "create": "true"})
    commands.connection["private_key_password"] = "correct horse"
    commands.up(c={"kind": "remote", "create": "true"})


@pytest.fixture
def ssh_agent(tmp_path):
    socket = tmp_path / "agent"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for("the agent", socket.exists, SECONDS)
    yield socket
    process.kill()
    process.wait()


def test_the_keys_of_an_agent_are_used(commands, ssh_agent):
    del commands.connection["private_key"]
    command = {"kind": "remote", "create": "true"}
    assert "there is nothing to log in to" in commands.fails(c=command)
    commands.environment["SSH_AUTH_SOCK"] = str(ssh_agent)
    assert "there is nothing to log in to" in commands.fails(c=command)  # it has no key
    subprocess.run(
        ["ssh-add", "-q", str(commands.server.folder / "user")],
        env=commands.environment,
        check=True,
    )
    commands.up(c=command)
    commands.environment["SSH_AUTH_SOCK"] = str(ssh_agent) + "-gone"
    assert "the SSH agent at" in commands.fails(d=command)
    commands.connection["agent_socket_path"] = str(ssh_agent)
    commands.up(c=command, d=command)


def test_a_key_that_may_not_log_in_is_told_at_once(commands):
    commands.server.key("stranger")
    commands.connection["private_key"] = (commands.server.folder / "stranger").read_text()
    output = commands.fails(c={"kind": "remote", "create": "true"})
    assert "lets nobody in" in output
    assert "attempt" not in output


def test_nothing_of_a_connection_reaches_a_shell(commands):  # F39
    canary = commands.folder / "canary"
    evil = [f"$(touch {canary})", f"x;touch {canary}", f"x\ntouch {canary}", "-oProxyCommand=x y"]
    for text in evil:
        for key in ("host", "user"):
            connection = {key: text}
            output = commands.fails(
                c={"kind": "remote", "create": "true", "connection": connection}
            )
            assert f"connection.{key}" in output
    assert not canary.exists()
    # What is a command's own comes through untouched.
    value = "'\"$(touch x);`id`\nü"
    commands.up(c={"kind": "remote", "create": "cat", "stdin": value})
    assert commands.resource("c")["outputs"]["stdout"] == value


def test_an_unreachable_host_is_given_up_after_the_limit(commands):
    commands.server.end()
    begun = time.monotonic()
    output = commands.fails(
        c={"kind": "remote", "create": "true", "connection": {"dial_error_limit": 2}}
    )
    assert "attempt 1 of 3" in output
    assert "cannot be reached by SSH after 3 attempts" in output
    assert time.monotonic() - begun < 20


def test_a_host_that_comes_up_is_waited_for(commands):
    commands.server.end()
    commands.declare(c={"kind": "remote", "create": "true", "connection": {"dial_error_limit": -1}})
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


def _sleeping(path, kind, **more):
    command = f"sleep 300 & echo $! > {path}.new; mv {path}.new {path}; wait"
    return {"kind": kind, "create": command, **more}


def _runs(path):
    try:
        return psutil.Process(int(path.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@KINDS
def test_ctrl_c_ends_a_running_command_and_what_it_started(commands, sleeper, kind):  # F11
    commands.declare(c=_sleeping(sleeper, kind))
    process = commands.start("up", "--yes")
    wait_for("the command's start", sleeper.exists, SECONDS)
    begun = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    output = process.communicate(timeout=20)[0]
    assert process.returncode == 1
    assert time.monotonic() - begun < 5
    assert "canceled; what it had done" in output
    wait_for("the command's end", lambda: not _runs(sleeper), SECONDS)
    assert [e for e in commands.resources() if e["urn"].endswith("::c")] == []
    commands.up(c={"kind": kind, "create": "true"})


@KINDS
def test_custom_timeouts_bound_a_command(commands, sleeper, kind):
    output = commands.fails(c=_sleeping(sleeper, kind, timeouts={"create": "2s"}))
    assert "not done within 2 s" in output
    wait_for("the command's end", lambda: not _runs(sleeper), SECONDS)


def test_a_connection_that_is_cut_is_a_failure(commands, sleeper):
    commands.declare(c=_sleeping(sleeper, "remote"))
    process = commands.start("up", "--yes")
    wait_for("the command's start", sleeper.exists, SECONDS)
    commands.server.cut()
    output = process.communicate(timeout=20)[0]
    assert process.returncode == 1
    assert "the connection" in output


def test_texts_files_and_folders_are_copied(commands):
    there = commands.folder / "there"
    source = commands.project / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "a").write_text("1")
    (source / "b").write_text("2")
    shape = {
        "text": {"kind": "copy", "text": "as given", "remote_path": f"{there}/new/text"},
        "file": {"kind": "copy", "file": "source/b", "remote_path": f"{there}/file"},
        "folder": {"kind": "copy", "files": "source", "remote_path": f"{there}/folder"},
        "content": {"kind": "copy", "files": "source/", "remote_path": f"{there}/content"},
    }
    commands.up(**shape)
    assert (there / "new" / "text").read_text() == "as given"
    assert (there / "file").read_text() == "2"
    assert (there / "folder" / "source" / "sub" / "a").read_text() == "1"
    assert (there / "content" / "sub" / "empty").is_dir()
    assert (there / "content" / "b").read_text() == "2"
    commands.up("--refresh", "--expect-no-changes")

    # The content is what counts, not where it lies.
    (commands.project / "elsewhere").write_text("2")
    shape["file"]["file"] = str(commands.project / "elsewhere")
    commands.up("--expect-no-changes", **shape)
    (source / "b").write_text("3")
    shape["file"]["file"] = "source/b"
    shape["text"]["text"] = "anew"
    output = commands.up(**shape)
    assert output.count("update done") == 4
    assert (there / "file").read_text() == "3"
    assert (there / "content" / "b").read_text() == "3"
    assert (there / "new" / "text").read_text() == "anew"

    # Into a folder that is there, under its own name.
    commands.up(file={**shape["file"], "remote_path": f"{there}/folder"})
    assert (there / "folder" / "b").read_text() == "3"
    commands.done("destroy", "--yes")
    assert (there / "file").exists()


def test_a_copy_that_cannot_be_made_says_why(commands):
    copy = {"kind": "copy", "remote_path": str(commands.folder)}
    assert "is a folder there" in commands.fails(c={**copy, "text": "x"})
    assert "cannot be read: No such file" in commands.fails(c={**copy, "file": "nothing"})
    copy["remote_path"] = "/proc/nothing/x"
    assert "does not take /proc/nothing/x" in commands.fails(c={**copy, "text": "x"})
    assert Path("/proc").is_dir()
