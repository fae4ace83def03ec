"""The state file: damage, locks, passphrases."""

import json
import os
import random
import shutil
import socket
from pathlib import Path

import pytest

from engine.crypto import Crypter
from engine.errors import EngineError, UnsupportedError
from engine.project import Project
from engine.state import Backend

SHARED_SALT = "v1:3/77fFO6W/8=:v1:grbGViW6bVIMqDp+:Z7Fen2VyWAIOtqQiUiyadzlD/l938w=="


def test_a_passphrase_of_the_pulumi_cli_is_understood():
    crypter = Crypter("x", SHARED_SALT)  # written by pulumi 3.260 with the passphrase x
    assert crypter.decrypt(crypter.encrypt("plain")) == "plain"


def test_a_wrong_passphrase_changes_nothing(stack, monkeypatch):  # F18
    stack.declare(a={"text": "one"})
    stack.up()
    before = stack.state_file.read_bytes()
    stack.declare(a={"text": "two"})
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "wrong")
    for command in ("up", "refresh", "destroy"):
        result = stack.run(command)
        assert result.code == 1
        assert "incorrect passphrase" in result.err
    assert stack.state_file.read_bytes() == before
    assert stack.files() == {"a.0.json": "one"}


def test_a_passphrase_that_is_not_the_settings_files_changes_nothing(stack):  # F18
    with stack.settings.open("a") as settings:
        settings.write(f"encryptionsalt: {SHARED_SALT}\n")  # made with another passphrase
    result = stack.run("up")
    assert result.code == 1
    assert "incorrect passphrase" in result.err
    assert result.out == ""
    assert not stack.state_file.exists()


def test_a_missing_passphrase_names_the_variables(stack, monkeypatch, tmp_path):  # F18
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    result = stack.run("up")
    assert result.code == 1
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" in result.err
    assert not stack.state_file.exists()


def test_another_secrets_provider_is_refused(stack):  # F18
    stack.declare(a={})
    stack.up()
    document = json.loads(stack.state_file.read_text())
    del document["sha256"]
    document["checkpoint"]["latest"]["secrets_providers"]["type"] = "cloud"
    stack.state_file.write_text(json.dumps(document))
    result = stack.run("up")
    assert result.code == 1
    assert "secrets provider 'cloud'" in result.err


@pytest.mark.parametrize("change", [{"features": ["views"]}, {"taint": True}])
def test_what_only_the_cli_knows_in_a_state_is_refused(stack, change):
    stack.declare(a={})
    stack.up()
    document = json.loads(stack.state_file.read_text())
    del document["sha256"]  # as after the pulumi CLI wrote it
    if "features" in change:
        document |= change
    else:
        document["checkpoint"]["latest"]["resources"][-1] |= change
    stack.state_file.write_text(json.dumps(document))
    result = stack.run("up")
    assert result.code == 1
    assert next(iter(change)) in result.err
    assert "pulumi CLI" in result.err


def _damages(content):
    yield b""
    yield b"{}"
    yield b"null"
    yield b"[]"
    yield b'{"version": 4, "checkpoint": {"latest": {}}}'
    choice = random.Random(15)
    for _ in range(20):
        yield content[: choice.randrange(1, len(content) - 1)]
    for _ in range(25):
        position = choice.randrange(len(content))
        flipped = content[position] ^ (1 << choice.randrange(8))
        yield content[:position] + bytes([flipped]) + content[position + 1 :]


def test_a_damaged_state_is_noticed_and_the_backup_restores_it(stack):  # F15
    stack.declare(a={"text": "one", "token": "some-secret"}, b={"text_of": "a"})
    stack.up()
    stack.up("--refresh")  # the .bak now holds the same resources
    good = stack.state_file.read_bytes()
    made = stack.journal()
    noticed = 0
    for damaged in _damages(good):
        stack.state_file.write_bytes(damaged)
        result = stack.run("up")
        if result.code == 0:
            # Only a flip in white space is none.
            assert json.loads(damaged) == json.loads(good)
            continue
        noticed += 1
        assert "nothing was changed; restore it: cp " in result.err
        assert stack.state_file.read_bytes() == damaged
    assert noticed >= 45
    command = result.err if result.code else ""
    stack.state_file.unlink()
    result = stack.run("up")
    assert "is missing" in result.err
    command = result.err.split("restore it: cp ")[1].split()
    shutil.copy(*command)
    assert stack.summary("preview", "--expect-no-changes") == {}
    assert stack.journal() == made


def test_a_foreign_resource_in_the_state_is_noticed(stack):  # F15
    stack.declare(a={})
    stack.up()
    document = json.loads(stack.state_file.read_text())
    del document["sha256"]  # as after the pulumi CLI wrote it
    text = json.dumps(document).replace("urn:pulumi:dev::", "urn:pulumi:prod::", 1)
    stack.state_file.write_text(text)
    result = stack.run("destroy")
    assert result.code == 1
    assert "is not of this stack" in result.err
    assert stack.files() == {"a.0.json": ""}


def test_an_interrupted_create_is_kept_until_it_is_settled(stack):  # F12
    stack.declare(a={"text": "one"}, b={"text": "one"})
    stack.up()
    document = json.loads(stack.state_file.read_text())
    del document["sha256"]
    latest = document["checkpoint"]["latest"]
    made = {name: stack.resource(name) for name in ("a", "b")}
    kept = [e for e in latest["resources"] if e["urn"] not in {m["urn"] for m in made.values()}]
    latest["resources"] = kept
    latest["pending_operations"] = [
        {
            "resource": {k: v for k, v in entry.items() if k not in ("id", "outputs")},
            "type": "creating",
        }
        for entry in made.values()
    ]
    stack.state_file.write_text(json.dumps(document))
    (stack.folder / "b.0.json").write_text("not JSON: find fails on it")
    failed = stack.run("up")
    assert failed.code == 1
    pending = json.loads(stack.state_file.read_text())["checkpoint"]["latest"]["pending_operations"]
    assert [operation["resource"]["urn"] for operation in pending] == [made["b"]["urn"]]
    (stack.folder / "b.0.json").write_text('{"text": "one", "token": null, "kind": "plain"}')
    assert stack.summary("up") == {}
    assert (
        "pending_operations" not in json.loads(stack.state_file.read_text())["checkpoint"]["latest"]
    )
    assert stack.journal() == ["create a.0.json", "create b.0.json"]


def _lock(stack, **fields):
    folder = stack.root / "backend/.pulumi/locks/organization/files/dev"
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "pid": os.getpid(),
        "username": "ada",
        "hostname": socket.gethostname(),
        "timestamp": "2999-01-01T00:00:00Z",
    }
    (folder / "other.json").write_text(json.dumps(content | fields))


def test_a_foreign_lock_is_respected_named_and_can_be_cancelled(stack):  # F13 F14
    stack.declare(a={})
    _lock(stack, hostname="elsewhere", pid=7)
    result = stack.run("up")
    assert result.code == 1
    assert "locked by ada@elsewhere (pid 7) since 2999" in result.err
    assert stack.files() == {}
    assert stack.run("preview").code == 0  # takes no lock
    assert stack.run("cancel").code == 0
    assert stack.run("up").code == 0


def test_a_full_disk_keeps_the_last_good_state(stack, monkeypatch):  # F16
    stack.declare(a={"text": "one"})
    stack.up()
    before = json.loads(stack.state_file.read_text())["checkpoint"]["latest"]["resources"]
    write = os.fsync

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    stack.declare(a={"text": "two"}, b={})
    result = stack.run("up")
    assert result.code == 1
    assert "No space left on device" in result.out + result.err
    monkeypatch.setattr("os.fsync", write)
    assert stack.resources() == before
    assert not list((stack.root / "backend/.pulumi").glob(".tmp-*"))
    stack.up()
    assert stack.files() == {"a.0.json": "two", "b.0.json": ""}


@pytest.mark.parametrize("url", ["s3://bucket", "https://api.example"])
def test_other_backends_are_refused(url):
    with pytest.raises(UnsupportedError, match="the state backend"):
        Backend(url, Path())


def test_the_login_of_the_pulumi_cli_is_followed(tmp_path, monkeypatch):
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path))
    (tmp_path / "credentials.json").write_text(json.dumps({"current": f"file://{tmp_path}/s"}))
    assert Backend("", Path()).folder == tmp_path / "s" / ".pulumi"
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "none"))
    assert Backend("", Path()).folder == Path.home() / ".pulumi"


def test_a_folder_without_a_project(tmp_path):
    with pytest.raises(EngineError, match=r"no Pulumi.yaml in"):
        Project.find(tmp_path)
